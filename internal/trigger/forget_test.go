package trigger_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// TestAuto_ForgetsInMinutes makes hedges as slow as their primaries for half an hour, at two calls
// per second, and then as fast as any call. Five minutes later hedges must be sent at the usual
// load.
func TestAuto_ForgetsInMinutes(t *testing.T) {
	longtest.Computation(t)
	const until = 30 * time.Minute
	distribution := func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		if at < until {
			attempt = 0
		}
		return slowTrickle(seed, id, attempt, at)
	}
	c := config()
	done := client{distribution: distribution, calls: 2 * 3600, rate: 2, seed: 1, config: c}.run().done
	of := func(from, to time.Duration) (calls []outcome) {
		for _, o := range done {
			if from <= o.at && o.at < to {
				calls = append(calls, o)
			}
		}
		return calls
	}
	before, after := load(of(until/2, until)), load(of(until+5*time.Minute, until+15*time.Minute))
	t.Logf("load %.1f%% while hedges are of no use, %.1f%% when they have been of use for five minutes", before,
		after)
	if after < 5 {
		t.Errorf("load %.1f%%, want 5%% at least", after)
	}
}

// TestAuto_UselessHedges makes hedges as slow as their primaries, for good.
func TestAuto_UselessHedges(t *testing.T) {
	longtest.Computation(t)
	same := func(seed, id uint64, _ int, at time.Duration) time.Duration { return slowTrickle(seed, id, 0, at) }
	for _, tc := range longtest.First(2, []struct {
		rate  float64
		calls int
		most  float64 // percent
	}{{5, 12_000, 3}, {100, 60_000, 2.5}, {1, 12_000, 3}, {20, 24_000, 3}, {500, 150_000, 1.5}, {2000, 300_000, 1.5}}) {
		done := client{distribution: same, calls: tc.calls, rate: tc.rate, seed: 1, config: config()}.run().done
		got := load(done[len(done)/10:])
		t.Logf("%v/s: load %.2f%%", tc.rate, got)
		if got > tc.most {
			t.Errorf("%v/s: load %.2f%%, want at most %v%%", tc.rate, got, tc.most)
		}
	}
}

// TestAuto_Deadlines has a deadline of 1 s and a backend that is 3 s slower, so the latency of the
// backend's calls is known only to exceed 1 s. They count as slow, and are hedged long before the
// deadline.
func TestAuto_Deadlines(t *testing.T) {
	longtest.Computation(t)
	for _, budget := range []float64{10, 50} {
		c := config()
		c.BudgetPercent = budget
		s := client{
			distribution: sick(3, plainly, slower(3000)),
			calls:        20_000,
			rate:         100,
			seed:         1,
			config:       c,
			deadline:     second,
		}.run()
		failed, calls := 0.0, s.done[1000:]
		for _, o := range calls {
			if o.took >= second {
				failed++
			}
		}
		share, e := 100*failed/float64(len(calls)), s.learner.Estimate()
		t.Logf("budget %v%%: %.2f%% of calls fail, delay %v, load %.1f%%", budget, share, e.Delay, load(calls))
		if most := max(100./3-0.88*budget, 1); share > most || e.Delay > 50*ms {
			t.Errorf("budget %v%%: %.2f%% of calls fail, want at most %.1f%%; the delay is %v", budget, share,
				most, e.Delay)
		}
	}
}

// A deadline ends calls, and does not end the objective: where 5% of attempts miss a deadline three
// medians away, hedges prevent as many failures as the best percentile or fixed delay does.
func TestAuto_ANearDeadline(t *testing.T) {
	longtest.Computation(t)
	w := world{name: "deadline", law: ofRequest(func(_, a *rand.Rand) float64 {
		if d := 5 * math.Exp(.385*a.NormFloat64()); !chanceOf(a, .05) {
			return d
		}
		return 1000
	}), rate: 500, deadline: 15 * ms, calls: 40_000}
	failed := func(quantile float64, delay time.Duration) float64 {
		took, load := w.run(1, quantile, delay)
		n := 0.0
		for _, d := range took {
			if d >= 15 {
				n++
			}
		}
		share := 100 * n / float64(len(took))
		t.Logf("quantile %v, delay %v: %.2f%% of calls fail, load %.1f%%", quantile, delay, share, load)
		return share
	}
	best := failed(never, 0)
	for _, p := range []struct {
		quantile float64
		delay    time.Duration
	}{{.9, 0}, {.95, 0}, {0, 7500 * time.Microsecond}, {0, 10 * ms}, {0, 12500 * time.Microsecond}} {
		best = min(best, failed(p.quantile, p.delay))
	}
	if got := failed(auto, 0); got > 1.1*best {
		t.Errorf("%.2f%% of calls fail, want at most 1.1 times the best, %.2f%%", got, best)
	}
}
