package hedge_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// What is learned under another configuration does not move the hedges of a call in flight, though what is learned under its own
// does.
func TestRule20_ACallInFlightKeepsItsDelay(t *testing.T) {
	half := hedge.WithTrigger(hedge.Percentile(0.5))
	for _, tc := range []struct {
		name   string
		update []hedge.Option // nil: none
		want   time.Duration
	}{
		{"another floor", []hedge.Option{half, hedge.WithMinDelay(40 * ms)}, 10 * ms},
		{"another percentile", []hedge.Option{hedge.WithTrigger(hedge.Percentile(0.99))}, 10 * ms},
		{"the same options", []hedge.Option{half, hedge.WithMaxHedges(1)}, 60 * ms},
		{"no update", nil, 60 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, half, hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400))
			for range 40 {
				hedgetest.Call(t, s, target, method, 10*ms)
			}
			var others sync.WaitGroup
			others.Go(func() {
				time.Sleep(5 * ms)
				if tc.update != nil {
					if err := s.Update(append(tc.update, hedge.WithAllMethods(), hedge.WithBudgetPercent(400))...); err != nil {
						t.Error(err)
					}
				}
				for range 60 { // which teach that calls take 60 ms
					c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil)
					c.End(hcall.End{Age: 60 * ms})
				}
			})
			began := time.Now()
			var at atomic.Int64
			_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
				if isHedge(ctx) {
					at.Store(int64(time.Since(began)))
				}
				return hedgetest.Taking(200 * ms)(ctx)
			})
			others.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(at.Load()); !within(got, tc.want, 0.03) {
				t.Errorf("%s: the hedge was sent at %v, want %v", tc.name, got, tc.want)
			}
		})
	}
}

// A class of requests that a call in flight is the first of learns under the configuration in force, and not under the call's.
func TestRule20_AClassOfACallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		classes := hedge.WithClass(func(context.Context, string, any) string { return "c" })
		s := hedgetest.All(t, classes, hedge.WithTrigger(hedge.Percentile(0.5)))
		inFlight := hcall.Begin(registry.Of(s), t.Context(), target, method, nil)
		if err := s.Update(hedge.WithAllMethods(), classes, hedge.WithTrigger(hedge.Percentile(0.9))); err != nil {
			t.Fatal(err)
		}
		hedgetest.Call(t, s, target, "/pkg.Svc/Other", ms)
		next := hcall.Begin(registry.Of(s), t.Context(), target, method, nil)
		inFlight.Inspect(nil)
		next.End(hcall.End{})
		inFlight.End(hcall.End{})
		for i := range 100 {
			c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil)
			c.Inspect(nil)
			c.End(hcall.End{Age: time.Duration(1+i%10) * 10 * ms})
			time.Sleep(time.Second)
		}
		for _, row := range s.Targets() {
			if row.Method == method && (len(row.Classes) != 1 || !within(row.Classes[0].Delay, 90*ms, 0.05)) {
				t.Errorf("classes %+v, want one with a delay of 90ms", row.Classes)
			}
		}
	})
}

// Calls in flight keep their hedges when an update switches hedging off, in whatever way. Calls that begin afterwards have none.
func TestRule20_CallsInFlightKeepTheirHedges(t *testing.T) {
	const calls = 20
	fixed := hedge.WithTrigger(hedge.Fixed(10 * ms))
	ruled := func(opt hedge.Option) []hedge.Option {
		return []hedge.Option{fixed, hedge.WithMethodOptions(method, opt)}
	}
	share := func(p float64) []hedge.Option { return []hedge.Option{fixed, hedge.WithBudgetPercent(p)} }
	for _, tc := range []struct {
		name   string
		first  []hedge.Option
		update []hedge.Option
		later  bool // a call that begins later has a hedge
	}{
		{"no update", share(100), nil, true},
		{"WithMaxHedges(0)", share(100), []hedge.Option{fixed, hedge.WithMaxHedges(0)}, false},
		{"WithOff", share(100), ruled(hedge.WithOff()), false},
		{"WithBudgetPercent(0)", share(100), share(0), false},
		{"WithBudgetPercent(0) for the target", share(100), []hedge.Option{fixed, hedge.WithTargetOptions(target, hedge.WithBudgetPercent(0))}, false},
		{"WithBudgetPercent(0) for the method", append(ruled(hedge.WithBudgetPercent(100)), hedge.WithBudgetPercent(100)),
			append(ruled(hedge.WithBudgetPercent(0)), hedge.WithBudgetPercent(100)), false},
		{"WithBudgetPercent(0), but not for the method", append(ruled(hedge.WithBudgetPercent(100)), hedge.WithBudgetPercent(100)),
			append(ruled(hedge.WithBudgetPercent(100)), hedge.WithBudgetPercent(0)), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hedgetest.All(t, append(tc.first, hedge.WithMaxHedges(1))...)
				var inFlight sync.WaitGroup
				for range calls {
					inFlight.Go(func() { hedgetest.Call(t, s, target, method, 200*ms) })
				}
				time.Sleep(5 * ms)
				if tc.update != nil {
					if err := s.Update(append(tc.update, hedge.WithAllMethods())...); err != nil {
						t.Fatal(err)
					}
				}
				hedgetest.Call(t, s, target, method, ms) // so that the update has reached the method
				inFlight.Wait()
				if got := s.Stats().Hedges; got != calls {
					t.Errorf("%d calls in flight had %d hedges", calls, got)
				}
				hedgetest.Call(t, s, target, method, 200*ms)
				if got := s.Stats().Hedges > calls; got != tc.later {
					t.Errorf("a later call had a hedge: %v, want %v", got, tc.later)
				}
			})
		})
	}
}
