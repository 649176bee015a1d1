package trigger_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/internal/trigger"
)

// TestAuto_FirstCalls makes one attempt in five slow: more than the 90th percentile leaves out.
// Once the distribution is known, a budget of 30% and two hedges per call leave less than 1% of
// calls slow. The calls after the first choices come near that.
func TestAuto_FirstCalls(t *testing.T) {
	longtest.Computation(t)
	var calls, slow, all, hedges float64
	for seed := range uint64(longtest.Size(10, 40)) {
		c := config()
		c.BudgetPercent = 30
		s := client{
			distribution: independent(testserver.DistributionT(t, "ttft")),
			calls:        400,
			concurrency:  20,
			seed:         seed + 1,
			config:       c,
		}.run()
		for id, o := range s.done {
			all++
			hedges += float64(o.hedges)
			if id < 120 || id >= 250 {
				continue
			}
			if calls++; o.took > 100*ms {
				slow++
			}
		}
	}
	t.Logf("calls 120 to 250: %.1f%% slow; load of the first 400: %.1f%%", 100*slow/calls, 100*hedges/all)
	if slow > 0.03*calls {
		t.Errorf("%.1f%% of calls 120 to 250 are slow, want at most 3%%", 100*slow/calls)
	}
	if hedges > 0.305*all {
		t.Errorf("load %.1f%%, want at most 30.5%%", 100*hedges/all)
	}
}

// TestRule15_EarlyChoicesWaitForTheirTurn requires early choices to obey Pace as later ones do,
// with the percentile in their place. In virtual time the learner's own choices cost nothing, so
// the load of the machine does not matter.
func TestRule15_EarlyChoicesWaitForTheirTurn(t *testing.T) { synctest.Test(t, earlyChoicesWait) }

func earlyChoicesWait(t *testing.T) {
	of := testserver.DistributionT(t, "ttft")
	for _, busy := range []bool{false, true} {
		c := config()
		c.BudgetPercent, c.Pace = 40, &trigger.Pace{}
		l, epoch, random := &trigger.Learner{}, time.Unix(1e9, 0), simulation.Generator(1, 1, 1)
		l.Start(c, trigger.Owner{Budget: budget.New(30), Epoch: epoch})
		choices := 0
		l.Run(func(choose func()) { choices++; choose() })
		if busy {
			c.Pace.Take(0)
			c.Pace.Took(0, 200*ms) // uses up 20 s of Pace
		}
		for n := range 190 {
			l.PrimaryEnded(epoch.Add(time.Duration(n)*ms), of.Draw(random), true)
			if n == 90 && choices > 0 {
				t.Errorf("%d choices from fewer than a hundred calls", choices)
			}
		}
		e := l.Estimate()
		if e == nil || e.Choice != nil {
			t.Fatalf("busy %v: %+v", busy, e)
		}
		if busy && (choices > 0 || e.Delay < 150*ms) {
			t.Errorf("%d choices while it is the others' turn, the delay is %v, want the 90th percentile",
				choices, e.Delay)
		}
		if !busy && (choices < 2 || choices > 6 || e.Delay > 50*ms) {
			t.Errorf("%d choices, the delay is %v, want it below the slow attempts", choices, e.Delay)
		}
	}
}
