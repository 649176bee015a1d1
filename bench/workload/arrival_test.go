package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestArrivals checks the pace of calls, and that no two start at the same instant.
func TestArrivals(t *testing.T) {
	const calls = 49_500
	rng := rand.New(rand.NewPCG(1, 2))
	steady := metronome(2*time.Millisecond)(rng, calls)
	for n, at := range steady {
		if late := at - time.Duration(n)*2*time.Millisecond; late < 0 || late >= 200*time.Microsecond {
			t.Fatalf("call %d is %v late", n, late)
		}
	}
	for n, at := range bursts(100, time.Minute)(rng, 300) {
		if want := time.Duration(n/100)*time.Minute + time.Duration(n%100)*time.Microsecond; at != want {
			t.Fatalf("call %d of a burst starts at %v, want %v", n, at, want)
		}
	}
	random := poissonSteps(350, 475)(rng, calls)
	if len(random) != calls || !slices.IsSorted(random) {
		t.Fatalf("%d calls, in order: %v", len(random), slices.IsSorted(random))
	}
	first := stepEnd([]float64{350, 475}, 0, calls)
	last := stepEnd([]float64{350, 475}, 1, calls)
	if last != calls {
		t.Errorf("the last step ends with call %d", last)
	}
	for _, step := range []struct {
		rate      float64
		from, end int
	}{{350, 0, first}, {475, first, calls}} {
		var gaps, squares float64
		for n := step.from + 1; n < step.end; n++ {
			gap := (random[n] - random[n-1]).Seconds() * step.rate
			gaps, squares = gaps+gap, squares+gap*gap
		}
		n := float64(step.end - step.from - 1)
		if mean, second := gaps/n, squares/n; math.Abs(mean-1) > 0.03 || math.Abs(second-2) > 0.15 {
			t.Errorf("at %v calls a second gaps have the moments %.3f and %.3f, want those of the exponential "+
				"distribution, 1 and 2", step.rate, mean, second)
		}
	}
}

// TestParts checks that each call is in one part of its workload.
func TestParts(t *testing.T) {
	for _, w := range All {
		for _, calls := range []int{1, 7, 300, 45_000} {
			for n := range calls {
				in := 0
				for _, p := range w.Parts {
					if p.Has(n, calls) {
						in++
					}
				}
				if len(w.Parts) > 0 && in != 1 {
					t.Fatalf("%s: call %d of %d is in %d parts", w.Name, n, calls, in)
				}
			}
		}
	}
}
