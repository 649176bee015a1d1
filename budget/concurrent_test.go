package budget_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// Callers on many goroutines, whose clocks differ by up to 20 ms, never get more than was earned and what was there.
func TestRule12_ConcurrentSpendsNeverExceedEarnings(t *testing.T) {
	const callers, share = 8, 0.10
	calls := longtest.Size(10_000, 50_000)
	for _, tt := range []struct {
		name string
		tick time.Duration // by which each call moves the time
		keep float64       // the least share of what was earned that must be paid out
	}{
		{"within a step", 0, 1},
		{"across steps", 50 * time.Microsecond, 0.99},
		{"a step per call", 250 * time.Millisecond, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := budget.New(100 * share)
			var clock, earned, paid atomic.Int64
			var wg sync.WaitGroup
			start := make(chan struct{})
			for caller := range callers {
				wg.Go(func() {
					<-start
					for i := range calls {
						now := time.Duration(clock.Add(int64(tt.tick))) + time.Duration((caller*i)%20)*time.Millisecond
						earned.Add(1)
						b.Earn(at(now), 1)
						if b.Spend(at(now), i%2 == 0, 1) {
							if n := paid.Add(1); float64(n) > share*float64(earned.Load())+1 {
								t.Errorf("%d hedges paid for after at most %d calls", n, earned.Load())
								return
							}
						}
					}
				})
			}
			close(start)
			wg.Wait()
			paid.Add(int64(drain(b, time.Duration(clock.Load()), true)))
			if got, want := float64(paid.Load()), tt.keep*share*float64(callers*calls); got < want {
				t.Errorf("%v hedges paid for, want %v or more", got, want)
			}
		})
	}
}
