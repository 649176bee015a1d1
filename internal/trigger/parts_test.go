package trigger_test

import (
	"math"
	"testing"

	"github.com/grpchedge/hedge/internal/testserver/worlds"
	"github.com/grpchedge/hedge/internal/trigger"
)

// TestParts takes each part of the trigger out.
func TestParts(t *testing.T) {
	worlds.Ablate(t, []worlds.Part{
		worlds.Unset("measured outcomes", trigger.Assumed, math.MaxFloat64),
		worlds.Unset("hedge latency", trigger.KeptHedges, 1e9),
		worlds.Unset("1000 kept calls", trigger.KeptCalls, 0),
		worlds.Unset("changes", trigger.Matters, 2),
		worlds.Unset("deadline factor", trigger.DeadlineFactor, 1),
		worlds.Unset("choice after a pause", trigger.StaleForNext, math.MaxInt32),
	})
}
