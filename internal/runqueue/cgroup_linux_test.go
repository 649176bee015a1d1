package runqueue

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestWait_ThrottledProcess writes a byte every 10 ms to a process with one processor, which computes
// for 2 ms for each. The process is free to do so, and then in a cgroup that lets it compute for 10
// of 100 ms.
func TestWait_ThrottledProcess(t *testing.T) {
	const variable = "RUNQUEUE_THROTTLED"
	if os.Getenv(variable) != "" {
		serveStdin()
		os.Exit(0)
	}
	group := fmt.Sprintf("/sys/fs/cgroup/cpu/runqueue-test-%d", os.Getpid())
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("needs root and the first version of cgroups: ", err)
	}
	defer os.Remove(group)
	if err := os.WriteFile(group+"/cpu.cfs_quota_us", []byte("10000"), 0); err != nil {
		t.Skip(err)
	}
	wait := func(throttled bool) (mean, worst time.Duration) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWait_ThrottledProcess$")
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", variable+"=1")
		var out strings.Builder
		cmd.Stdout = &out
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if throttled {
			if err := os.WriteFile(group+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
				t.Error(err)
			}
		}
		ticks := time.NewTicker(10 * ms)
		defer ticks.Stop()
		for range 150 {
			<-ticks.C
			_, _ = in.Write([]byte{1})
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		var share float64
		if _, err := fmt.Sscan(out.String(), &mean, &worst, &share); err != nil {
			t.Fatalf("%v: %q", err, &out)
		}
		t.Logf("throttled %t: mean wait %v; %.0f%% of arrivals saw more than 1 ms; a goroutine waited for %v",
			throttled, mean,
			100*share, worst)
		return mean, worst
	}
	free, worst := wait(false) // a busy machine throttles it too, as its own goroutines then see
	throttled, _ := wait(true)
	if throttled < 5*ms || free > max(throttled/2, worst) {
		t.Errorf("waits for %v, at most %v by its own clock, and for %v when throttled", free, worst, throttled)
	}
}

// serveStdin computes for each byte that arrives. It prints the mean of Wait at the arrivals, in ns,
// the longest time that a goroutine took to begin, and the share of arrivals at which Wait was over
// 1 ms.
func serveStdin() {
	var sink atomic.Uint64
	compute := func(n int) {
		x := uint64(1)
		for range n {
			x = x*6364136223846793005 + 1
		}
		sink.Add(x)
	}
	used := func() int64 {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	const trial = 10_000_000
	before := used()
	compute(trial)
	n := int(trial * float64(2*ms) / float64(used()-before))
	arrivals, busy, sum, worst := 0, 0, time.Duration(0), atomic.Int64{}
	for b := make([]byte, 1); ; arrivals++ {
		if _, err := os.Stdin.Read(b); err != nil {
			break
		}
		wait := Wait()
		sum += wait
		if wait > ms {
			busy++
		}
		began := time.Now()
		go func() {
			worst.Store(max(worst.Load(), int64(time.Since(began)))) // on the only processor
			compute(n)
		}()
	}
	fmt.Println(int64(sum)/int64(arrivals), worst.Load(), float64(busy)/float64(arrivals))
}
