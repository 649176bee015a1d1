package acceptance_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
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
			if burst := s.Methods()[0].Burst; burst > 18.5 {
				t.Errorf("a cost of %v: the burst is %.1f, want 18", odd, burst)
			}
			traffic(10*time.Second, 5*time.Second)
			if got := s.Stats().Hedges; got < 90 || got > 115 {
				t.Errorf("a cost of %v: %d hedges in the first 10 s of an outage, want about 110 of 900 calls", odd, got)
			}
		})
	}
}

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

// callsOf makes n calls of a method, one every 10 ms, which take so long each, and returns how many hedges they got.
func callsOf(t *testing.T, s *hedge.Scheduler, method string, n int, d time.Duration) int64 {
	t.Helper()
	before := s.Stats().Hedges
	for range n {
		hedgetest.Call(t, s, target, method, d)
		time.Sleep(10 * ms)
	}
	return s.Stats().Hedges - before
}

// One call in ten costs a hundred times as much as the others and is slow. With WithCost its hedges have to pay for that.
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

// The trigger plans with what a method can get: the smaller of its own budget and its target's.
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

// A changed budget is in force for the next calls, and what was saved stays.
func TestUpdate_ChangesTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixed, all, most := hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithAllMethods(), hedge.WithMaxHedges(1)
		s := hedgetest.All(t, fixed, most, hedge.WithBudgetPercent(10))
		for i, step := range []struct {
			percent  float64
			from, to int64
		}{{10, 18, 24}, {50, 96, 102}, {0, 0, 0}, {10, 18, 22}} {
			if i > 0 {
				if err := s.Update(all, fixed, most, hedge.WithBudgetPercent(step.percent)); err != nil {
					t.Fatal(err)
				}
			}
			if got := callsOf(t, s, "/s/M", 200, 100*ms); got < step.from || got > step.to {
				t.Errorf("at %v%%: %d hedges of 200 calls, want %d to %d", step.percent, got, step.from, step.to)
			}
		}
	})
}

// A method's own budget outlives updates under which it has none: it does not begin again with a hedge to spend.
func TestUpdate_KeepsAMethodsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100)}
		s := hedgetest.All(t, opts[1:]...)
		hedges := int64(0)
		for range 20 {
			if err := s.Update(append(opts, hedge.WithMethodOptions("/s/Own", hedge.WithBudgetPercent(1)))...); err != nil {
				t.Fatal(err)
			}
			hedges += callsOf(t, s, "/s/Own", 1, 100*ms)
			if err := s.Update(opts...); err != nil {
				t.Fatal(err)
			}
			callsOf(t, s, "/s/Own", 1, ms)
		}
		if hedges > 1 {
			t.Errorf("%d hedges of 20 calls, want 1", hedges)
		}
	})
}

// In TestDryRun_TakesNothingFromRealHedges a dry run of one method leaves the target's budget to the others, savings included.
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
			t.Errorf("the budget has %v tokens and %v saved, before it had %v and %v", now.Tokens, now.Saved, before.Tokens, before.Saved)
		}
	})
}

// Every call is slow, so that each wants its hedges, and shares move up and down a thousand times a second: the target's, and those of
// methods with a budget of their own. Hedges stay, in every interval, within the largest share of the calls in
// it, the burst at its start, and the two hedges that savings pay.
func TestRule12_SharesThatMove(t *testing.T) {
	const callers = 64
	rounds := longtest.Size(10, 200)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		begun, sent := map[string][]time.Time{}, map[string][]time.Time{}
		note := func(list map[string][]time.Time, method string) {
			mu.Lock()
			defer mu.Unlock()
			list[method] = append(list[method], time.Now())
		}
		s := hedgetest.All(t, moved(0)...)
		var over atomic.Bool
		var updater, group sync.WaitGroup
		updater.Go(func() {
			for i := 1; !over.Load(); i++ {
				if err := s.Update(append(moved(i), hedge.WithAllMethods())...); err != nil {
					t.Error(err)
				}
				time.Sleep(ms)
			}
		})
		for caller := range callers {
			group.Go(func() {
				r := rand.New(rand.NewPCG(uint64(caller), 9))
				for range rounds {
					time.Sleep(time.Duration(r.ExpFloat64() * float64(100*ms)))
					name := []string{method, ruled, reads}[r.IntN(3)]
					note(begun, name)
					_, err := hedge.Do(context.Background(), s, target, name, func(ctx context.Context) (int, error) {
						if simulation.AttemptOf(ctx) > 0 {
							note(sent, name)
						}
						return hedgetest.Taking(200 * ms)(ctx)
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		over.Store(true)
		updater.Wait()
		synctest.Wait()
		checkEveryInterval(t, "the target", targetMost, slices.Concat(begun[method], begun[ruled], begun[reads]), slices.Concat(sent[method], sent[ruled], sent[reads]))
		checkEveryInterval(t, "a method", ownMost, begun[ruled], sent[ruled])
		checkEveryInterval(t, "another method", otherMost, begun[reads], sent[reads])
	})
}

const targetMost, ownMost, otherMost = 0.20, 0.05, 0.08

// moved are the options after i updates.
func moved(i int) []hedge.Option {
	percent := hedge.WithBudgetPercent
	opts := []hedge.Option{
		hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithMaxHedges(3),
		percent(100 * []float64{targetMost, 0.05, targetMost - 1e-9, 0.13}[i%4]),
		hedge.WithMethodOptions(reads, percent(100*[]float64{otherMost, 0.01, 0, otherMost / 3}[i/3%4])),
	}
	if i%5 > 0 { // it has none of its own meanwhile, and only then more than its share
		return append(opts, hedge.WithMethodOptions(ruled, percent(100*[]float64{ownMost, 0.02}[i%2])))
	}
	return append(opts, hedge.WithMethodOptions(ruled, hedge.WithOff(true)))
}

// checkEveryInterval checks that in each interval hedges ≤ share·calls + burst + 2. The burst is what two seconds of calls earn, and one
// at least.
func checkEveryInterval(t *testing.T, whose string, share float64, calls, hedges []time.Time) {
	t.Helper()
	slices.SortFunc(calls, time.Time.Compare)
	slices.SortFunc(hedges, time.Time.Compare)
	least, from, begun := math.Inf(1), 0, 0
	for n, at := range hedges {
		for begun < len(calls) && !calls[begun].After(at) { // an interval begins just before a call, or
			for calls[from].Before(calls[begun].Add(-2 * time.Second)) {
				from++
			}
			burst := max(1, share*float64(begun-from))
			least = min(least, burst+float64(n)-share*float64(begun))
			begun++
		}
		if over := float64(n+1) - share*float64(begun) - least - 2; over > 1e-6 {
			t.Fatalf("%s: %.2f hedges too many, at hedge %d and call %d", whose, over, n+1, begun)
		}
	}
	t.Logf("%s: %d hedges of %d calls, %.1f%%; the largest share is %v%%", whose, len(hedges), len(calls), 100*float64(len(hedges))/float64(len(calls)), 100*share)
	if float64(len(hedges)) < 0.1*share*float64(len(calls)) {
		t.Errorf("%s: the test has come to nothing", whose)
	}
}
