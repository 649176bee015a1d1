package knee_test

import (
	"math"
	"testing"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/internal/testserver"
)

// TestPredict plays plans that no search has found, and compares them with what is predicted.
func TestPredict(t *testing.T) {
	straggler := testserver.DistributionT(t, "straggler")
	p := problem(straggler, 0.001, 1)
	for _, plan := range []knee.Plan{
		{Delay: 10 * ms, Probability: 1, Hedges: 2},
		{Delay: 10 * ms, Probability: 0.4, Hedges: 1},
		{Delay: 40 * ms, Probability: 0.7, Hedges: 3},
		{Delay: 80 * ms, Probability: 1, Hedges: 1},
	} {
		predicted := p.Predict(plan)
		took, load := play(straggler, plan, 500_000, 1)
		near := func(what string, predicted, played, within float64) {
			if math.Abs(predicted/played-1) > within {
				t.Errorf("%+v: %s is predicted to be %v, and is %v", plan, what, predicted, played)
			}
		}
		near("load", predicted.Load, load, 0.05)
		for _, q := range []float64{0.5, 0.9, 0.99, 0.995} {
			near("a percentile", float64(p.Percentile(plan, q))/float64(ms), at(took, q), 0.03)
		}
	}
}

// TestPredict_AsFound checks that a plan that was found promises what is predicted for it.
func TestPredict_AsFound(t *testing.T) {
	for _, name := range []string{"straggler", "pareto", "ttft"} {
		p := problem(testserver.DistributionT(t, name), 0.1, 2)
		found, ok := knee.Find(p)
		if !ok {
			t.Fatal(name)
		}
		again := p.Predict(knee.Plan{Delay: found.Delay, Probability: found.Probability, Hedges: found.Hedges})
		if found != again {
			t.Errorf("%s: %+v is predicted to be %+v", name, found, again)
		}
	}
}
