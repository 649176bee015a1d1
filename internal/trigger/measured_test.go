package trigger_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/trigger"
)

// hedged plays calls with one hedge at age, until n of them have reached that age, and returns the
// outcome of these n. In the given share of calls the hedge takes as long as the primary.
func hedged(l testserver.Distribution, age time.Duration, n int, share float64, seed uint64) trigger.HedgedCalls {
	r := rand.New(rand.NewPCG(seed, 5))
	var rest sketch.Counts
	for rest.Total() < float64(n) {
		primary, hedge := l.Draw(r), l.Draw(r)
		if primary <= age {
			continue
		}
		if r.Float64() < share {
			hedge = primary
		}
		rest.Add(min(primary-age, hedge))
	}
	return trigger.HedgedCalls{Age: age, Hedges: 1, Rest: rest}
}

// Measured calls that agree with the model hardly change the plan, regardless of their number.
func TestFind_MeasuredAsPredicted(t *testing.T) {
	l := testserver.DistributionT(t, "straggler")
	p := problem(l, 0.10, 1)
	want, _ := trigger.Find(p)
	for _, n := range []int{1, 10, 100, 1000} {
		for seed := range uint64(3) {
			p.Measured = nil
			for age := 7 * ms; age < 40*ms; age = age * 5 / 4 {
				p.Measured = append(p.Measured, hedged(l, age, n, 0, seed))
			}
			got, ok := trigger.Find(p)
			if !ok || math.Abs(got.Saved-want.Saved) > 0.15 || math.Abs(got.Load-want.Load) > 0.05 {
				t.Errorf("%d calls a step, seed %d: %+v, without them %+v", n, seed, got, want)
			}
		}
	}
}

// Hedges as slow as their primaries lower the predicted savings with each observation, finally to
// zero.
func TestFind_MeasuredThatDisappoint(t *testing.T) {
	l := testserver.DistributionT(t, "straggler")
	p := problem(l, 0.10, 1)
	before := 1.0
	for _, n := range []int{3, 30, 300, 1000} {
		p.Measured = nil
		for age := ms; age < 70*ms; age = age * 5 / 4 {
			p.Measured = append(p.Measured, hedged(l, age, n, 1, 1))
		}
		plan, ok := trigger.Find(p)
		if !ok || plan.Saved > before+0.02 {
			t.Errorf("%d calls a step: %.2f is to be saved, %.2f with fewer", n, plan.Saved, before)
		}
		before = plan.Saved
	}
	if before > 0.05 {
		t.Errorf("%.2f is to be saved where no hedge has helped", before)
	}
}

// If hedges disappoint at one delay, the plan moves to a delay at which they do not: here a delay
// late enough that only stalls are hedged.
func TestFind_MeasuredMoveTheDelay(t *testing.T) {
	l := testserver.DistributionT(t, "straggler")
	p := problem(l, 0.10, 1)
	alone, _ := trigger.Find(p)
	for age := 7 * ms; age < 15*ms; age = age * 11 / 10 {
		p.Measured = append(p.Measured, hedged(l, age, 1000, 1, 1))
	}
	plan, _ := trigger.Find(p)
	if alone.Delay > 15*ms || plan.Delay < 15*ms || plan.Delay > 40*ms {
		t.Errorf("the delay is %v, and was %v before hedges below 15ms disappointed", plan.Delay, alone.Delay)
	}
}

// The age of measured calls is an average of delays at bucket edges. Rounding can move it below the
// edge.
func TestFind_MeasuredAtAnEdge(t *testing.T) {
	l := testserver.Mixture(
		testserver.Part{Weight: 0.9, Distribution: testserver.Constant(5 * ms)},
		testserver.Part{Weight: 0.1, Distribution: testserver.Constant(100 * ms)},
	)
	p := problem(l, 0.10, 1)
	edge := sketch.UpperEdge(sketch.Bucket(5 * ms))
	for _, age := range []time.Duration{edge - 1, edge, edge + 1} {
		p.Measured = []trigger.HedgedCalls{hedged(l, edge, 300, 0, 1)}
		p.Measured[0].Age = age
		if plan := p.Predict(trigger.HedgePlan{Delay: edge, Probability: 1, Hedges: 1}); plan.Kept < 0.8 {
			t.Errorf("at %v: %.2f is kept of what independent hedges save", age, plan.Kept)
		}
	}
}
