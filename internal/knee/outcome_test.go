package knee_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/sketch"
)

// hedged plays calls that are hedged once at the age given, and returns what became of those that got that far: of so many.
// Share is the part of calls whose hedge takes as long as the primary.
func hedged(l testserver.Distribution, age time.Duration, n int, share float64, seed uint64) knee.Outcome {
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
		rest.Add(min(primary-age, hedge), 1)
	}
	return knee.Outcome{Age: age, Hedges: 1, Rest: rest}
}

// Outcomes that agree with the model change next to nothing, however few or many they are.
func TestFind_OutcomesAsPredicted(t *testing.T) {
	l := testserver.DistributionT(t, "straggler")
	p := problem(l, 0.10, 1)
	want, _ := knee.Find(p)
	for _, n := range []int{1, 10, 100, 1000} {
		for seed := range uint64(3) {
			p.Outcomes = nil
			for age := 7 * ms; age < 40*ms; age = age * 5 / 4 {
				p.Outcomes = append(p.Outcomes, hedged(l, age, n, 0, seed))
			}
			got, ok := knee.Find(p)
			if tail := float64(got.Tail) / float64(want.Tail); !ok || math.Abs(tail-1) > 0.10 || math.Abs(got.Load-want.Load) > 0.01 {
				t.Errorf("%d calls a step, seed %d: %+v, without them %+v", n, seed, got, want)
			}
		}
	}
}

// Hedges that are as slow as their primaries promise less the more of them were seen, and at last nothing.
func TestFind_OutcomesThatDisappoint(t *testing.T) {
	l := testserver.DistributionT(t, "straggler")
	p := problem(l, 0.10, 1)
	unhedged, before := knee.Tail(p.Primary, 0.99), 0.0
	for _, n := range []int{3, 30, 300, 1000} {
		p.Outcomes = nil
		for age := ms; age < 70*ms; age = age * 5 / 4 {
			p.Outcomes = append(p.Outcomes, hedged(l, age, n, 1, 1))
		}
		plan, ok := knee.Find(p)
		tail := float64(plan.Tail) / float64(unhedged)
		if !ok || tail < before-0.02 {
			t.Errorf("%d calls a step: p99 %.2f of the unhedged, %.2f with fewer", n, tail, before)
		}
		before = tail
	}
	if before < 0.90 {
		t.Errorf("p99 is %.2f of the unhedged where no hedge has helped", before)
	}
}

// A delay whose hedges disappoint is left for one whose hedges do not: here those that are late enough to be of stalls.
func TestFind_OutcomesMoveTheDelay(t *testing.T) {
	l := testserver.DistributionT(t, "straggler")
	p := problem(l, 0.10, 1)
	alone, _ := knee.Find(p)
	for age := 7 * ms; age < 15*ms; age = age * 11 / 10 {
		p.Outcomes = append(p.Outcomes, hedged(l, age, 1000, 1, 1))
	}
	plan, _ := knee.Find(p)
	if alone.Delay > 15*ms || plan.Delay < 15*ms || plan.Delay > 40*ms {
		t.Errorf("the delay is %v, and was %v before hedges below 15ms disappointed", plan.Delay, alone.Delay)
	}
}

func TestFind_Skeptical(t *testing.T) {
	l := testserver.DistributionT(t, "straggler")
	p := problem(l, 0.10, 1)
	p.Skeptical = true
	unhedged := float64(knee.Tail(p.Primary, 0.99))
	share := func(outcomes ...knee.Outcome) float64 {
		p.Outcomes = outcomes
		plan, ok := knee.Find(p)
		if !ok {
			t.Fatal("no plan")
		}
		return float64(plan.Tail) / unhedged
	}
	if got := share(); math.Abs(got-1) > 0.001 {
		t.Errorf("without outcomes p99 is to be %.3f of the unhedged", got)
	}
	if got := share(hedged(l, 10*ms, 40, 0, 1)); math.Abs(got-1) > 0.001 {
		t.Errorf("with 40 calls p99 is to be %.3f of the unhedged", got)
	}
	if got := share(hedged(l, 10*ms, 1000, 0, 1)); got > 0.4 {
		t.Errorf("with 1,000 good calls p99 is to be %.3f of the unhedged", got)
	}
	if got := share(hedged(l, 9*ms, 30, 0, 1), hedged(l, 11*ms, 30, 0, 2)); got > 0.5 {
		t.Errorf("with 60 good calls of ages near each other p99 is to be %.3f of the unhedged", got)
	}
	if got := share(hedged(l, 10*ms, 1000, 1, 1)); got < 0.9 {
		t.Errorf("with 1,000 calls that no hedge has helped p99 is to be %.3f of the unhedged", got)
	}
}
