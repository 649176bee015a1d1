package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
)

// TestFleetMean checks the mean that the capacity of a fleet is computed from.
func TestFleetMean(t *testing.T) {
	distribution, err := testserver.ParseDistribution(fleetDistribution)
	if err != nil {
		t.Fatal(err)
	}
	distribution = testserver.Straggler(distribution, fleetSlow, fleetFactor)
	rng := rand.New(rand.NewPCG(1, 2))
	const draws = 1_000_000
	sum := time.Duration(0)
	for range draws {
		sum += distribution.Draw(rng)
	}
	if mean := sum.Seconds() / draws; math.Abs(mean/fleetMean-1) > 0.01 {
		t.Errorf("work takes %.2f ms in the mean, computed is %.2f", 1e3*mean, 1e3*fleetMean)
	}
}

// TestFleetArrivals checks the pace of the calls of each step, in a whole run and in a part of it,
// and that no two calls start at the same instant.
func TestFleetArrivals(t *testing.T) {
	f := *Named("fleet").Fleet
	for _, calls := range []int{f.calls(), f.calls() / 10} {
		at := f.arrivals(rand.New(rand.NewPCG(1, 2)), calls)
		if len(at) != calls || !slices.IsSorted(at) || len(slices.Compact(slices.Clone(at))) != calls {
			t.Fatalf("%d calls of %d, in order: %v, at %d instants", len(at), calls, slices.IsSorted(at),
				len(slices.Compact(slices.Clone(at))))
		}
		from, n := time.Duration(0), 0
		for i, end := range f.Times(calls) {
			first := n
			for ; n < calls && at[n] < end; n++ {
				if !f.parts()[i].Has(n, calls) {
					t.Fatalf("call %d of %d starts at %v, in another step than %s", n, calls, at[n], f.Steps[i].Name)
				}
			}
			if load := float64(n-first) / (end - from).Seconds() / f.capacity; math.Abs(load-f.Steps[i].Load) > 0.002 {
				t.Errorf("of %d calls, %s: a load of %.3f", calls, f.Steps[i].Name, load)
			}
			from = end
		}
	}
}
