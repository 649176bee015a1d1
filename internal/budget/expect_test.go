package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

func TestExpect(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		percent, perSecond, tokens float64
	}{
		{10, 30, 6},
		{10, 1, 1},
		{10, 10_000, 8},
		{400, 1e300, 8},
		{0.001, 1e9, 1.1},
		{10, 0, 1},
		{10, -1, 1},
		{10, math.NaN(), 1},
		{10, math.Inf(1), 8},
		{0, 100, 0},
	} {
		b := budget.New(c.percent)
		b.Expect(now, c.perSecond)
		if got := b.Balance(now).Tokens; math.Abs(got-c.tokens) > 0.2 {
			t.Errorf("%v%% of %v calls a second: %v tokens, want %v", c.percent, c.perSecond, got, c.tokens)
		}
		spent := 0
		for b.Spend(now, true, 1) {
			spent++
		}
		if spent > 8 {
			t.Errorf("%v%% of %v calls a second: %d hedges at once", c.percent, c.perSecond, spent)
		}
	}
}
