package trigger_test

import (
	"cmp"
	"math"
	"sync"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
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
