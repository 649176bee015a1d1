package trigger_test

import (
	"cmp"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
	"github.com/grpchedge/hedge/internal/trigger"
)

// TestAuto_Worlds compares the trigger with plain calls, two percentiles and three fixed delays with
// the same budget, in each world of the table.
func TestAuto_Worlds(t *testing.T) {
	longtest.Computation(t)
	kinds := map[worlds.Kind][2][]worlds.Measures{} // ratios of worlds, and of their methods
	var mu sync.Mutex
	t.Run("all", func(t *testing.T) {
		for _, w := range worlds.All() {
			if !longtest.Long() && !w.Short {
				continue
			}
			t.Run(w.Name, func(t *testing.T) {
				t.Parallel()
				most := cmp.Or(w.Most, w.Kind.Most)
				if !longtest.Long() { // fewer seeds
					most = max(most, 1.25)
				}
				c := w.Compare(longtest.Size(1, 2))
				t.Log(c.Row)
				for i, ratio := range c.Ratio {
					if ratio > most {
						t.Errorf("%s is %.2f times that of the best policy, want at most %.2f", worlds.Measured[i], ratio, most)
					}
				}
				if most := cmp.Or(w.Load, 1.1*cmp.Or(w.Budget, 10)); c.Load > most {
					t.Errorf("load %.2f%%, want at most %v%%", c.Load, most)
				}
				mu.Lock()
				defer mu.Unlock()
				of := kinds[w.Kind]
				kinds[w.Kind] = [2][]worlds.Measures{append(of[0], c.Ratio), append(of[1], c.Methods...)}
			})
		}
	})
	for kind, ratios := range kinds {
		for i, what := range []string{"worlds", "methods"} {
			mean := worlds.GeometricMean(ratios[i])
			t.Logf("%s, mean of %d %s: %.3f times the best", kind.Name, len(ratios[i]), what, mean)
			for i, x := range mean {
				if most := kind.Mean[i]; longtest.Long() && x > most && !math.IsNaN(x) {
					t.Errorf("%s: %s of %s is %.3f times that of the best policy, want at most %.2f", kind.Name,
						worlds.Measured[i], what, x, most)
				}
			}
		}
	}
}

// TestAuto_ANearDeadline has 5% of attempts miss a deadline of three medians. Hedges prevent as many
// failures as the best percentile or fixed delay.
func TestAuto_ANearDeadline(t *testing.T) {
	longtest.Computation(t)
	failed := func(p worlds.Policy) (share float64) {
		done := worlds.NearDeadline.Run(1, p).Calls
		for _, c := range done {
			if c.Took >= worlds.NearDeadline.Deadline {
				share += 100 / float64(len(done))
			}
		}
		t.Logf("%+v: %.2f%% of calls fail", p, share)
		return share
	}
	best := math.Inf(1)
	for _, p := range []worlds.Policy{worlds.Never, {Quantile: .9}, {Quantile: .95},
		{Medians: 1.5}, {Medians: 2}, {Medians: 2.5}} {
		best = min(best, failed(p))
	}
	if got := failed(worlds.Auto); got > 1.1*best {
		t.Errorf("%.2f%% of calls fail, want at most 1.1 times the best, %.2f%%", got, best)
	}
}

func TestChanged(t *testing.T) {
	usual := testserver.DistributionT(t, "straggler")
	later := testserver.Add(usual, testserver.Constant(time.Second))
	for _, tc := range []struct {
		name          string
		before, since testserver.Distribution
		n, m          int
		want          string
	}{
		{name: "nothing", before: usual, since: usual, n: 5000, m: 1000},
		{name: "nothing, from the fewest calls", before: usual, since: usual, n: 50, m: 60},
		{name: "an outage", before: usual, since: later, n: 5000, m: 60, want: "slower"},
		{name: "its end", before: later, since: usual, n: 5000, m: 60, want: "faster"},
		{name: "an outage, from a few calls", before: usual, since: later, n: 5000, m: 16, want: "slower"},
		{name: "too few to tell", before: usual, since: later, n: 5000, m: 8},
		{name: "nothing before", before: usual, since: later, m: 1000},
		{name: "a base four times as long", before: usual, n: 5000, m: 200, want: "slower",
			since: testserver.LogNormal(20*ms, 8*ms)},
		{name: "a base a third as long again", before: usual, n: 5000, m: 200,
			since: testserver.LogNormal(6650*time.Microsecond, 2650*time.Microsecond)},
		{name: "a quarter of the base, from few calls", before: usual, n: 1000, m: 20, want: "faster",
			since: testserver.LogNormal(1250*time.Microsecond, 500*time.Microsecond)},
		{name: "one in twenty more is slow", before: usual, n: 5000, m: 1000,
			since: testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.10, 10)},
	} {
		for seed := range uint64(longtest.Size(5, 100)) {
			slower, faster := trigger.Changed(observed(tc.before, tc.n, 2*seed),
				observed(tc.since, tc.m, 2*seed+1))
			if slower != (tc.want == "slower") || faster != (tc.want == "faster") {
				t.Errorf("%s, seed %d: slower %v, faster %v", tc.name, seed, slower, faster)
			}
		}
	}
	w, now := sketch.New(time.Hour), time.Now()
	for range 100 {
		w.Record(now, ms, false)
	}
	if slower, faster := trigger.Changed(observed(usual, 1000, 1), w.Snapshot(now)); slower || faster {
		t.Errorf("calls that were all cut short show no latency: slower %v, faster %v", slower, faster)
	}
}

// The fast calls of a burst end first, and its slow calls last. Neither is a change.
func TestChangeOfDistribution_NotInIdenticalBursts(t *testing.T) {
	for _, median := range longtest.First(1, []float64{1000, 5, 4000}) {
		s := worlds.World{
			Law: worlds.SlowOnes(median, .45, 8), Calls: 24_000, Gathered: 1000, Every: 2 * time.Minute,
		}.Run(1, worlds.Auto)
		if s.Learner.HasChanged() {
			t.Errorf("median %v ms: a change was noticed in identical bursts", median)
		}
	}
}
