package trigger_test

import (
	"math"
	"math/rand/v2"
	"slices"
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

// In TestAuto_ANearDeadline 5% of attempts miss a deadline three medians away. Hedges prevent as many
// failures as the best percentile or fixed delay does.
func TestAuto_ANearDeadline(t *testing.T) {
	longtest.Computation(t)
	w := world{name: "deadline", law: ofRequest(func(_, a *rand.Rand) float64 {
		if d := 5 * math.Exp(.385*a.NormFloat64()); !chanceOf(a, .05) {
			return d
		}
		return 1000
	}), rate: 500, deadline: 15 * ms, calls: 40_000}
	failed := func(p policy) float64 {
		took, load := w.run(1, p)
		at, _ := slices.BinarySearch(took, 15)
		share := 100 * float64(len(took)-at) / float64(len(took))
		t.Logf("%+v: %.2f%% of calls fail, load %.1f%%", p, share, load)
		return share
	}
	best := failed(never)
	for _, p := range []policy{p90, p95, {medians: 1.5}, {medians: 2}, {medians: 2.5}} {
		best = min(best, failed(p))
	}
	if got := failed(auto); got > 1.1*best {
		t.Errorf("%.2f%% of calls fail, want at most 1.1 times the best, %.2f%%", got, best)
	}
}
