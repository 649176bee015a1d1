package workload

import (
	"math"
	"math/rand/v2"
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
		t.Errorf("work takes %.2f ms on average, computed is %.2f", 1e3*mean, 1e3*fleetMean)
	}
}
