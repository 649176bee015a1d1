package learn_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/learn"
)

// TestRule15_AllChoicesTogetherCostLittle has 2,000 methods with eleven calls a second each.
func TestRule15_AllChoicesTogetherCostLittle(t *testing.T) {
	const methods, rate, seconds = 2000, 11, 20
	c, epoch, of := config(), time.Now(), law(t, "straggler")
	random := generator(1, 1, 1)
	learners := make([]learn.Learner, methods)
	var choices int
	var cost time.Duration
	for i := range learners {
		learners[i].Start(c, budget.New(10), epoch, true)
		learners[i].Run(func(choose func()) {
			began := time.Now()
			choose()
			choices++
			cost += time.Since(began)
		})
		for range 300 { // a choice is made from 200 on
			learners[i].Observe(epoch, of.Draw(random))
		}
	}
	choices, cost = 0, 0
	for call := range rate * seconds {
		now := epoch.Add(time.Duration(call) * time.Second / rate)
		for i := range learners {
			learners[i].Observe(now, of.Draw(random))
		}
	}
	t.Logf("%d choices in %d s, %v", choices, seconds, cost)
	// Beside the share, what was ahead of it, and the choice that was in the making.
	if most := (seconds + 2) * time.Second / 100; cost > most {
		t.Errorf("%d choices took %v, want at most %v", choices, cost, most)
	}
	if choices < 100 {
		t.Errorf("%d choices", choices)
	}
}
