package runqueue

import (
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

func TestMeter_Window(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := time.Now()
		var total reading
		reads := 0
		m := meter{origin: origin, read: func() (uint64, float64) { reads++; return total.n, total.waited }}
		for i, step := range []struct {
			pass   time.Duration
			n      uint64
			each   time.Duration // that the n have waited
			want   time.Duration
			cached bool
		}{
			{pass: 0, n: 100, each: 9 * ms},               // before the first call
			{pass: 4 * ms, n: 10, each: ms, cached: true}, // the mean is fresh
			{pass: ms, n: 10, each: 3 * ms, want: 2 * ms}, // 20 in 5 ms
			{pass: 45 * ms, want: 2 * ms},
			{pass: 10 * ms, n: 20, each: 6 * ms, want: 4 * ms},
			{pass: 40 * ms, want: 6 * ms}, // since 50 ms: the first 20 are over
			{pass: 10 * ms, want: 6 * ms},
			{pass: 50 * ms},
			{pass: time.Minute, n: 1000, each: ms, want: ms}, // since the call before
		} {
			time.Sleep(step.pass)
			total.n += step.n
			total.waited += float64(step.n) * step.each.Seconds()
			before := reads
			if got := m.wait(); (got-step.want).Abs() > time.Microsecond || (reads == before) != step.cached {
				t.Errorf("step %d: %v, read %d times; want %v", i, got, reads-before, step.want)
			}
		}
	})
}

func TestSum(t *testing.T) {
	n, total := sum(&metrics.Float64Histogram{
		Counts:  []uint64{2, 0, 4, 1},
		Buckets: []float64{math.Inf(-1), 1, 3, 5, math.Inf(1)},
	})
	if n != 7 || total != 2*.5+4*4+5 {
		t.Errorf("%d waits of %v in all, want 7", n, total)
	}
}

func TestBusy(t *testing.T) {
	for _, tc := range []struct {
		late, wait, limit time.Duration
		busy              bool
	}{
		{late: 2 * ms, limit: ms}, // timers are no more precise
		{late: 2*ms + 1, limit: ms, busy: true},
		{late: 5 * ms, limit: 5 * ms},
		{late: 5*ms + 1, limit: 5 * ms, busy: true},
		{late: 1, wait: ms / 5},
		{late: 1, wait: ms/5 + 1, busy: true},
		{late: 1, wait: 5 * ms, limit: 5 * ms},
		{late: 1, wait: 5*ms + 1, limit: 5 * ms, busy: true},
	} {
		if got := delays(tc.late, tc.wait, tc.limit); got != tc.busy {
			t.Errorf("%+v: busy: %t", tc, got)
		}
	}
	if Busy(0, 0) || !Busy(time.Hour, time.Minute) {
		t.Error("busy in virtual time, or not busy when a timer is an hour late")
	}
	restore := Replace(func() time.Duration { return time.Minute })
	if !Busy(0, time.Second) || Busy(time.Hour, time.Minute) {
		t.Error("Busy does not depend on the replacement alone")
	}
	restore()
}

func TestWait_DoesNotAllocate(t *testing.T) {
	Wait()
	if n := testing.AllocsPerRun(100, func() { process.until.Store(1); Wait() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				process.until.Store(1)
				Wait()
			}
		})
	}
	all.Wait()
}

// TestWait_BusyProcess starts processes with one processor: an idle one, and one in which
// goroutines wait for each other.
func TestWait_BusyProcess(t *testing.T) {
	const variable = "RUNQUEUE_GOROUTINES"
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		Wait()
		var all sync.WaitGroup
		for range n {
			all.Go(func() { // in turns of 1 ms: of few long waits the runtime may record none
				for range 10 {
					for turn := time.Now(); time.Since(turn) < ms; {
					}
					runtime.Gosched()
				}
			})
		}
		all.Wait()
		late := time.Duration(0)
		for range 20 { // so that an idle process has goroutines that run
			began := time.Now()
			time.Sleep(ms)
			late = max(late, time.Since(began)-ms)
		}
		fmt.Println("waited", int64(Wait()), int64(late))
		os.Exit(0)
	}
	wait := func(goroutines int) (wait, late time.Duration) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWait_BusyProcess$")
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", variable+"="+strconv.Itoa(goroutines))
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(strings.TrimPrefix(string(out), "waited "), &wait, &late); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		return wait, late
	}
	idle, late := wait(0) // late where the machine is busy
	busy, _ := wait(20)
	t.Logf("idle %v, at most %v late, busy %v", idle, late, busy)
	if idle > max(busy/2, late) || busy < ms {
		t.Errorf("idle %v, at most %v late, busy %v", idle, late, busy)
	}
}

// TestReadArrived has goroutines that always wait for the only processor, and a byte that has arrived
// on a socket. After ReadArrived the byte has been read, and the goroutine that waits for the reader
// has run, in nearly all cases: a goroutine that is preempted may run first.
func TestReadArrived(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	var heard, stop atomic.Int64
	passed := make(chan struct{}, 1)
	var all sync.WaitGroup
	all.Go(func() {
		for b := make([]byte, 1); ; passed <- struct{}{} {
			if _, err := client.Read(b); err != nil {
				close(passed)
				return
			}
		}
	})
	all.Go(func() {
		for range passed {
			heard.Add(1)
		}
	})
	for range 3 {
		all.Go(func() {
			for stop.Load() == 0 {
				for turn := time.Now(); time.Since(turn) < 100*time.Microsecond; {
				}
				runtime.Gosched()
			}
		})
	}
	const bytes = 50
	unread, late := 0, 0
	for n := range int64(bytes) {
		for heard.Load() < n {
			runtime.Gosched()
		}
		if _, err := server.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		if runtime.Gosched(); heard.Load() == n {
			unread++
		}
		if ReadArrived(); heard.Load() == n {
			late++
		}
	}
	stop.Store(1)
	client.Close()
	all.Wait()
	t.Logf("of %d bytes %d lay unread after a turn, and %d after ReadArrived", bytes, unread, late)
	if late > bytes/4 {
		t.Errorf("of %d bytes %d lay unread after a turn, and %d after ReadArrived", bytes, unread, late)
	}
}

// TestReadArrived_Concurrently has calls that share rounds, in real and in virtual time.
func TestReadArrived_Concurrently(t *testing.T) {
	share := func(*testing.T) {
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range 20 {
					ReadArrived()
				}
			})
		}
		all.Wait()
	}
	synctest.Test(t, share)
	share(t)
	synctest.Test(t, share)
}
