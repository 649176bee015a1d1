package budget_test

import (
	"math"
	"testing"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
)

// TestParts takes each part of the budget out.
func TestParts(t *testing.T) {
	worlds.Ablate(t, []worlds.Part{
		worlds.Unset("savings", budget.SavedBursts, 0),
		worlds.Unset("savings pay only while hedges win", budget.LeastWins, math.MinInt),
		worlds.Unset("half of the burst pays before savings", budget.BurstFirst, 0),
		worlds.Unset("slow calls keep the burst", budget.Prompt, math.MaxInt64),
		worlds.Unset("reserve", budget.MaxReserve, 0),
		worlds.Unset("price", budget.MostPrice, budget.LeastPrice),
		worlds.Unset("refused hedges raise the price", budget.InVain, 0),
	})
}
