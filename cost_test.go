package hedge_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// One call of 90 a second has an odd cost. Three minutes later all calls are slow: that one call has bought no hedges.
func TestWithCost_OneOddCost(t *testing.T) {
	longtest.Simulation(t)
	for _, odd := range []float64{1, math.Inf(1), math.Inf(-1), math.NaN(), -1, 10_000, math.MaxFloat64} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithMaxHedges(1),
				hedge.WithCost(func(context.Context, string, any) float64 {
					if calls.Add(1) == 100 {
						return odd
					}
					return 1
				}))
			var group sync.WaitGroup
			defer group.Wait()
			traffic := func(lasts, takes time.Duration) {
				for range int(lasts.Seconds() * 90) {
					group.Go(func() { hedgetest.Call(t, s, target, method, takes) })
					time.Sleep(time.Second / 90)
				}
			}
			traffic(3*time.Minute, ms)
			if burst := s.Targets()[0].Burst; burst > 18.5 {
				t.Errorf("a cost of %v: the burst is %.1f, want 18", odd, burst)
			}
			traffic(10*time.Second, 5*time.Second)
			if got := s.Stats().Hedges; got < 90 || got > 115 {
				t.Errorf("a cost of %v: %d hedges in the first 10 s of an outage, want about 110 of 900 calls", odd, got)
			}
		})
	}
}

// An invalid cost is counted, and logged once for each method.
func TestWithCost_InvalidCostsAreTold(t *testing.T) {
	for _, cost := range []float64{0, 0.5, 10_000, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), -1} {
		t.Run(fmt.Sprint(cost), func(t *testing.T) {
			var l logged
			s := hedgetest.All(t, l.option(), hedge.WithTrigger(hedge.Fixed(time.Hour)),
				hedge.WithCost(func(context.Context, string, any) float64 { return cost }))
			want, lines := int64(0), ""
			if !(cost >= 0 && cost <= math.MaxFloat64) {
				want = 3
				lines = fmt.Sprintf("level=WARN msg=\"hedging cost invalid\" target=%s method=%s cost=%v", target, method, cost)
			}
			for range 3 {
				hedgetest.Call(t, s, target, method, 0)
			}
			if got := s.Stats().InvalidCosts; got != want {
				t.Errorf("InvalidCosts = %d, want %d", got, want)
			}
			if got := strings.Join(l.lines(), "\n"); got != lines {
				t.Errorf("logged\n%s\nwant\n%s", got, lines)
			}
		})
	}
}
