package trigger_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
)

// logOf returns the latencies of unhedged calls.
func logOf(l attemptDistribution, seed uint64, calls int) *sketch.Distribution {
	var counts [sketch.Buckets]float32
	for id := range uint64(calls) {
		counts[sketch.Bucket(l(seed, id, 0, 0))]++
	}
	var c sketch.Counts
	for bucket, n := range counts {
		if n > 0 {
			c = append(c, sketch.Count{Bucket: int32(bucket), Calls: n})
		}
	}
	return new(sketch.Distribution).Plus(c)
}

// TestAuto_AsPredicted compares the prediction from unhedged calls with the result of hedging other
// calls of the same distribution. In sizes requests differ, which unhedged calls do not show:
// hedging falls short of the prediction there.
func TestAuto_AsPredicted(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct {
		name         string
		distribution attemptDistribution
		most         float64 // bound on p99, as a multiple of the prediction
	}{
		{"straggler", independent(testserver.DistributionT(t, "straggler")), 1.1},
		{"pareto", independent(testserver.DistributionT(t, "pareto")), 1.1},
		{"sizes", sizes(1, .02, 200), 1.85},
	} {
		const calls = 40_000
		log := logOf(tc.distribution, 1, calls)
		for _, percent := range []float64{1, 2, 5, 10, 20} {
			c := config()
			c.BudgetPercent = percent
			p, ok := c.Predict(log, math.MaxFloat64)
			if !ok {
				t.Fatal("no prediction")
			}
			done := client{distribution: tc.distribution, calls: calls, rate: 500, seed: 2, config: c}.run().done[500:]
			inMS := func(d time.Duration) float64 { return float64(d) / float64(ms) }
			t.Logf(
				"%-9s %2.0f%%: predicted p99 %.1f, p99.9 %.1f, load %.1f%%; reached %.1f, %.1f, %.1f%%",
				tc.name,
				percent,
				inMS(p.With(0.99)),
				inMS(p.With(0.999)),
				100*p.Plan.Load,
				tail(done, 0.99),
				tail(done, 0.999),
				load(done),
			)
			if ratio := tail(done, 0.99) / inMS(p.With(0.99)); ratio < 0.75 || ratio > tc.most {
				t.Errorf("%s, %v%%: p99 is %.2f times what was predicted", tc.name, percent, ratio)
			}
			if difference := load(done) - 100*p.Plan.Load; percent < 20 && difference > 2 {
				t.Errorf("%s, %v%%: load %.1f%%, predicted %.1f%%", tc.name, percent, load(done), 100*p.Plan.Load)
			}
		}
	}
}

// TestAuto_AsPredictedByClass splits the requests of sizes into classes by weight, each within a
// factor of e^½. The prediction for a class is as good as for a distribution with independent
// attempts.
func TestAuto_AsPredictedByClass(t *testing.T) {
	longtest.Computation(t)
	for class := -3; class < 3; class++ {
		class := ofRequest(func(r, a *rand.Rand) float64 {
			d := 5*math.Exp((float64(class)+r.Float64())/2) + a.ExpFloat64()
			if chanceOf(a, .02) {
				d += 200
			}
			return d
		})
		const calls = 20_000
		p, ok := config().Predict(logOf(class, 1, calls), math.MaxFloat64)
		if !ok {
			t.Fatal("no prediction")
		}
		done := client{distribution: class, calls: calls, rate: 100, seed: 2, config: config()}.run().done[500:]
		predicted := float64(p.With(0.99)) / float64(ms)
		t.Logf(
			"p50 %.1f: p99 without %.1f, predicted %.1f, reached %.1f, load %.1f%%, %.1f%%",
			tail(done, 0.5),
			float64(p.Without(0.99))/float64(ms),
			predicted,
			tail(done, 0.99),
			100*p.Plan.Load,
			load(done),
		)
		if ratio := tail(done, 0.99) / predicted; ratio < 0.8 || ratio > 1.1 {
			t.Errorf("p99 is %.2f times what was predicted", ratio)
		}
	}
}
