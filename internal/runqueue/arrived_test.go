package runqueue

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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
