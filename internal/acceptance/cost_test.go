package acceptance_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// An invalid cost is counted.
func TestWithCost_InvalidCosts(t *testing.T) {
	for _, cost := range []float64{0, 0.5, 10_000, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), -1} {
		t.Run(fmt.Sprint(cost), func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(time.Hour)),
				hedge.WithCost(func(context.Context, string, any) float64 { return cost }))
			want := int64(0)
			if !(cost >= 0 && cost <= math.MaxFloat64) {
				want = 3
			}
			for range 3 {
				hedgetest.Call(t, s, target, method, 0)
			}
			if got := s.Stats().InvalidCosts; got != want {
				t.Errorf("InvalidCosts = %d, want %d", got, want)
			}
		})
	}
}

// callsOf makes n calls of a method, one every 10 ms with the given latency, and returns the number
// of their hedges.
func callsOf(t *testing.T, s *hedge.Scheduler, method string, n int, d time.Duration) int64 {
	t.Helper()
	before := s.Stats().Hedges
	for range n {
		hedgetest.Call(t, s, target, method, d)
		time.Sleep(10 * ms)
	}
	return s.Stats().Hedges - before
}

// One call in ten costs a hundred times as much as the others and is slow. With WithCost its hedges
// have to pay for that.
func TestWithCost_TheBudgetIsAShareOfCost(t *testing.T) {
	cost := hedge.WithCost(func(_ context.Context, method string, _ any) float64 {
		if method == "/s/Million" {
			return 100
		}
		return 1
	})
	fixed := hedge.WithTrigger(hedge.Fixed(10 * ms))
	for name, tc := range map[string]struct {
		options  []hedge.Option
		from, to int64
	}{
		"calls": {[]hedge.Option{fixed}, 95, 102},
		"cost":  {[]hedge.Option{fixed, cost}, 5, 12}, // a tenth of 100 calls, which are most of all cost
	} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, append(tc.options, hedge.WithMaxHedges(1))...)
			var hedges int64
			for range 100 {
				callsOf(t, s, "/s/Key", 9, ms)
				hedges += callsOf(t, s, "/s/Million", 1, 100*ms)
			}
			if hedges < tc.from || hedges > tc.to {
				t.Errorf("%s: %d hedges of 100 slow calls, want %d to %d", name, hedges, tc.from, tc.to)
			}
		})
	}
}

// A method has less than its target gives, and not more.
func TestRules_AMethodsOwnBudget(t *testing.T) {
	fixed := hedge.WithTrigger(hedge.Fixed(10 * ms))
	for name, tc := range map[string]struct {
		own, target float64
		from, to    int64
	}{
		"less":    {2, 20, 3, 6},
		"more":    {50, 5, 9, 12},
		"nothing": {0, 20, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, fixed, hedge.WithMaxHedges(1), hedge.WithBudgetPercent(tc.target),
				hedge.WithMethodOptions("/s/Own", hedge.WithBudgetPercent(tc.own)))
			if got := callsOf(t, s, "/s/Own", 200, 100*ms); got < tc.from || got > tc.to {
				t.Errorf("%s: %d hedges of 200 calls, want %d to %d", name, got, tc.from, tc.to)
			}
		})
	}
}

// The trigger plans with the smaller of the method's own budget and its target's.
func TestWithBudgetPercent_IsPlannedWith(t *testing.T) {
	for _, own := range []float64{2, 10, 50} {
		straggling := func(id uint64, attempt int, _ time.Duration) time.Duration {
			if draw := rand.New(rand.NewPCG(id, uint64(attempt))); draw.IntN(10) == 0 {
				return 100 * ms
			}
			return 5 * ms
		}
		_, rows := simulation.Client{Latency: straggling, Calls: 3000, Rate: 100, Options: []hedge.Option{
			hedge.WithBudgetPercent(5), hedge.WithMethodOptions("/*/*", hedge.WithBudgetPercent(own)),
		}}.Run(t)
		if c, most := rows[0].Choice, min(own, 5)/100; c.PredictedLoad == 0 || c.PredictedLoad > most {
			t.Errorf("an own budget of %v%%: a load of %v is planned, want at most %v", own, c.PredictedLoad, most)
		}
	}
}

// A changed budget, of the target or of a method, applies from the next call on, and savings stay.
func TestUpdate_ChangesTheBudget(t *testing.T) {
	for name, budget := range map[string]func(percent float64) hedge.Option{
		"the target's": hedge.WithBudgetPercent,
		"a method's": func(percent float64) hedge.Option {
			return hedge.WithTargetOptions("*", hedge.WithBudgetPercent(100),
				hedge.WithMethodOptions("/s/M", hedge.WithBudgetPercent(percent)))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			fixed, all, most := hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithAllMethods(), hedge.WithMaxHedges(1)
			s := hedgetest.All(t, fixed, most, budget(10))
			for i, step := range []struct {
				percent  float64
				from, to int64
			}{{10, 18, 24}, {50, 96, 102}, {0, 0, 0}, {10, 18, 22}} {
				if i > 0 {
					hedgetest.Update(t, s, all, fixed, most, budget(step.percent))
				}
				if got := callsOf(t, s, "/s/M", 200, 100*ms); got < step.from || got > step.to {
					t.Errorf("%s at %v%%: %d hedges of 200 calls, want %d to %d", name, step.percent, got, step.from, step.to)
				}
			}
		})
	}
}

// A method's own budget outlives updates under which it has none: it does not begin again with a
// hedge to spend.
func TestUpdate_KeepsAMethodsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)),
			hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100)}
		s := hedgetest.All(t, opts[1:]...)
		hedges := int64(0)
		for range 20 {
			hedgetest.Update(t, s, append(opts, hedge.WithMethodOptions("/s/Own", hedge.WithBudgetPercent(1)))...)
			hedges += callsOf(t, s, "/s/Own", 1, 100*ms)
			hedgetest.Update(t, s, opts...)
			callsOf(t, s, "/s/Own", 1, ms)
		}
		if hedges != 1 {
			t.Errorf("%d hedges of 20 calls, want 1", hedges)
		}
	})
}

// In TestDryRun_TakesNothingFromRealHedges a dry run of one method leaves the target's budget to
// the others, savings included.
func TestDryRun_TakesNothingFromRealHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(2*ms)), hedge.WithMethodOptions("/s/Dry", hedge.WithDryRun(true)))
		callsOf(t, s, "/s/Fast", 1000, 2*ms-1)
		before := s.Methods()[0]
		callsOf(t, s, "/s/Dry", 100, 2*ms+1)
		rows := s.Methods()
		if dry := rows[0]; dry.DryRun < 10 || dry.DryRun > 13 || dry.BudgetExhausted+dry.DryRun != 100 {
			t.Errorf("%d hedges would have been sent, and %d not been paid for", dry.DryRun, dry.BudgetExhausted)
		}
		if now := rows[1]; now.Tokens+now.Saved < 0.99*(before.Tokens+before.Saved) {
			t.Errorf("the budget has %v tokens and %v saved, before it had %v and %v", now.Tokens, now.Saved,
				before.Tokens, before.Saved)
		}
	})
}
