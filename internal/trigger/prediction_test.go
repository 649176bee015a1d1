package trigger_test

import (
	"fmt"
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
// hedging falls short of the prediction there. The rows of a class are the requests of sizes within
// a factor of e^½, for which the prediction is as good as with independent attempts.
func TestAuto_AsPredicted(t *testing.T) {
	longtest.Computation(t)
	type row struct {
		name         string
		distribution attemptDistribution
		percents     []float64
		rate         float64
		most         float64 // bound on p99, as a multiple of the prediction
	}
	budgets := []float64{1, 2, 5, 10, 20}
	rows := []row{
		{"straggler", straggler, budgets, 500, 1.1},
		{"pareto", independent(testserver.DistributionT(t, "pareto")), budgets, 500, 1.1},
		{"sizes", sizes(1, .02, 200), budgets, 500, 1.85},
	}
	for class := -3; class < 3; class++ {
		rows = append(rows, row{fmt.Sprint("class ", class), ofRequest(func(r, a *rand.Rand) float64 {
			d := 5*math.Exp((float64(class)+r.Float64())/2) + a.ExpFloat64()
			if chanceOf(a, .02) {
				d += 200
			}
			return d
		}), []float64{10}, 100, 1.1})
	}
	inMS := func(d time.Duration) float64 { return float64(d) / float64(ms) }
	for _, tc := range rows {
		const calls = 40_000
		log := logOf(tc.distribution, 1, calls)
		for _, percent := range tc.percents {
			c := config()
			c.BudgetPercent = percent
			p, ok := c.Predict(log, math.MaxFloat64)
			if !ok {
				t.Fatal("no prediction")
			}
			done := client{distribution: tc.distribution, calls: calls, rate: tc.rate, seed: 2, config: c}.run().done[500:]
			t.Logf("%-9s %2.0f%%: predicted p99 %.1f, p99.9 %.1f, load %.1f%%; reached %.1f, %.1f, %.1f%%", tc.name,
				percent, inMS(p.With(0.99)), inMS(p.With(0.999)), 100*p.Plan.Load, tail(done, 0.99),
				tail(done, 0.999), load(done))
			if ratio := tail(done, 0.99) / inMS(p.With(0.99)); ratio < 0.75 || ratio > tc.most {
				t.Errorf("%s, %v%%: p99 is %.2f times what was predicted", tc.name, percent, ratio)
			}
			if difference := load(done) - 100*p.Plan.Load; percent < 20 && difference > 2 {
				t.Errorf("%s, %v%%: load %.1f%%, predicted %.1f%%", tc.name, percent, load(done), 100*p.Plan.Load)
			}
		}
	}
}
