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
				t.Errorf("stopped for %v during %d choices: the next choice waits for more than half a minute", stopped, choices)
			}
		}
	}
}

// TestRule15_AChoiceWaitsForItsTurn requires early and later choices to obey Pace, with the
// percentile in place of early choices. In virtual time the learner's own choices cost nothing, so the
// load of the machine does not matter.
func TestRule15_AChoiceWaitsForItsTurn(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { choicesWait(t, busy) })
	}
}

func choicesWait(t *testing.T, busy bool) {
	c := config()
	c.BudgetPercent = 40
	l, epoch, choices := &trigger.Learner{}, time.Unix(1e9, 0), 0
	var pace trigger.Pace
	l.Start(c, trigger.Owner{Budget: budget.New(c.BudgetPercent), Pace: &pace, Origin: epoch})
	l.Run(func(choose func()) { choices++; choose() })
	of, random := testserver.DistributionT(t, "ttft"), simulation.Generator(1, 1, 1)
	calls := func(from, to time.Duration) {
		for at := from; at < to; at += ms {
			l.PrimaryEnded(epoch.Add(at), of.Draw(random), true)
		}
	}
	if busy {
		pace.Take(0)
		pace.Took(0, 200*ms) // uses up 20 s of Pace
	}
	calls(0, 190*ms)
	if d := l.Estimate().Delay; !busy && (choices < 2 || choices > 12 || d > 50*ms) {
		t.Errorf("%d choices, the delay is %v, want it below the slow attempts", choices, d)
	} else if busy && (choices > 0 || d < 150*ms) {
		t.Errorf("%d choices in other learners' turn, the delay is %v, want the 90th percentile", choices, d)
	}
	if calls(190*ms, 15*time.Second); busy && choices > 0 {
		t.Errorf("%d choices in other learners' turn", choices)
	}
	if calls(15*time.Second, 30*time.Second); choices < 5 {
		t.Errorf("%d choices, in ten seconds of its own turn", choices)
	}
}
