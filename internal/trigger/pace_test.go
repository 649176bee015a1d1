package trigger_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/internal/trigger"
)

// TestRule15_AllChoicesTogetherCostLittle has 2,000 methods request a choice ten times per second,
// with the cost of a choice on fast and slow machines.
func TestRule15_AllChoicesTogetherCostLittle(t *testing.T) {
	for _, each := range []time.Duration{10 * time.Microsecond, 50 * time.Microsecond, 300 * time.Microsecond, 20 * ms} {
		var p trigger.Pace
		const seconds = 30
		cost := time.Duration(0)
		for tick := range 10 * seconds {
			for range 2000 {
				if at := time.Duration(tick) * 100 * ms; p.Take(at) {
					p.Took(at, each)
					cost += each
				}
			}
		}
		share := seconds * time.Second / 100
		// Choices may run ahead by one second's share (10 ms), plus the last choice.
		if cost > share+10*ms+each || cost < share*9/10 {
			t.Errorf("%v a choice: %v in %d s, want 1%% of that", each, cost, seconds)
		}
	}
}

// TestPace_AStoppedProcess stops the process during choices: the next choice waits at most half a
// minute afterwards.
func TestPace_AStoppedProcess(t *testing.T) {
	for _, stopped := range []time.Duration{30 * time.Second, 24 * time.Hour} {
		for _, choices := range []int{1, 100} {
			var p trigger.Pace
			for range choices {
				p.Take(0)
			}
			for range choices {
				p.Took(0, stopped)
			}
			if !p.Take(stopped + 30*time.Second) {
				t.Errorf("stopped for %v in %d choices: the next one waits for more than half a minute", stopped, choices)
			}
		}
	}
}

// TestRule15_AChoiceWaitsForItsTurn uses up the share of choices first. In virtual time the
// learner's own choices cost nothing.
func TestRule15_AChoiceWaitsForItsTurn(t *testing.T) { synctest.Test(t, aChoiceWaitsForItsTurn) }

func aChoiceWaitsForItsTurn(t *testing.T) {
	c := config()
	c.Pace = &trigger.Pace{}
	l, epoch := &trigger.Learner{}, time.Unix(1e9, 0)
	of, random := testserver.DistributionT(t, "straggler"), simulation.Generator(1, 1, 1)
	l.Start(c, trigger.Owner{Budget: budget.New(10), Epoch: epoch})
	choices := 0
	l.Run(func(choose func()) { choices++; choose() })
	calls := func(from, to time.Duration) {
		for at := from; at < to; at += ms {
			l.PrimaryEnded(epoch.Add(at), of.Draw(random), true)
		}
	}
	c.Pace.Take(0)
	c.Pace.Took(0, 200*ms) // uses up 20 s of Pace
	calls(0, 15*time.Second)
	if choices != 0 || l.Estimate() == nil {
		t.Errorf("%d choices while it is the others' turn, the estimate is %v", choices, l.Estimate())
	}
	calls(15*time.Second, 30*time.Second)
	if choices < 5 {
		t.Errorf("%d choices in ten seconds of its own", choices)
	}
}
