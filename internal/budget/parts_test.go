package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
)

// TestParts takes each part of the budget out.
func TestParts(t *testing.T) {
	worlds.Ablate(t, []worlds.Part{
		worlds.Unset("savings", budget.SavedBursts, 0),
		worlds.Unset("savings pay only while hedges win", budget.PayingScore, 0).And(
			worlds.Unset("", budget.MaxUnproven, math.MaxInt)),
		worlds.Unset("score of 4", budget.PayingScore, 0),
		worlds.Unset("two ahead", budget.MaxUnproven, math.MaxInt),
		worlds.Unset("half of the burst first", budget.BurstFirst, 0),
		worlds.Unset("lifetimes by delay", budget.Prompt, time.Duration(math.MaxInt64)),
		worlds.Unset("reserve", budget.MaxReserve, 0),
		worlds.Unset("price", budget.MostPrice, budget.LeastPrice),
		worlds.Unset("refused", budget.InVain, 0),
	})
}
