package budget_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// Callers on many goroutines, whose clocks differ by up to 20 ms, never get more than was earned and
// the first token: within one step, with a step per call, and if the share moves all the time.
func TestRule12_ConcurrentSpendsNeverExceedEarnings(t *testing.T) {
	const callers, share = 8, 0.10
	calls := longtest.Size(10_000, 50_000)
	for name, tc := range map[string]struct {
		tick     time.Duration // between calls
		keep     float64       // the least share of the earnings that must be paid out
		percents []float64     // nil: the share stays
	}{
		"within a step":      {0, 1, nil},
		"across steps":       {50 * time.Microsecond, 0.99, nil},
		"a step per call":    {250 * time.Millisecond, 0, nil},
		"a share that moves": {50 * time.Microsecond, 0.05, []float64{10, 2, 9.999999, 0, 10, 0.5}},
	} {
		b := budget.New(100 * share)
		var clock, earned, paid atomic.Int64
		var group sync.WaitGroup
		for caller := range callers {
			group.Go(func() {
				for i := range calls {
					now := at(time.Duration(clock.Add(int64(tc.tick))) + time.Duration((caller*i)%20)*time.Millisecond)
					if tc.percents != nil {
						b.SetPercent(tc.percents[(caller+i)%len(tc.percents)])
					}
					earned.Add(1)
					b.Earn(now, 0)
					ok, saved := b.Pay(now, float64(i%2)/4)
					switch {
					case !ok:
						continue
					case i%7 == 0:
						b.Refund(saved, false)
						continue
					}
					b.Hedged(i%3 > 0)
					if n := paid.Add(1); float64(n) > share*float64(earned.Load())+1 {
						t.Errorf("%s: %d hedges paid for after at most %d calls", name, n, earned.Load())
						return
					}
				}
			})
		}
		group.Wait()
		held := b.Balance(at(time.Duration(clock.Load())))
		got, want := float64(paid.Load())+held.Tokens+held.Saved, tc.keep*share*float64(callers*calls)
		if got < want {
			t.Errorf("%s: %v hedges paid for or saved, want %v or more", name, got, want)
		}
	}
}
