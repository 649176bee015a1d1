package learn_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// manual returns a learner that makes choices synchronously, and the start of its clock.
func manual(t *testing.T) (l *learn.Learner, epoch time.Time) {
	t.Helper()
	l, epoch = &learn.Learner{}, time.Unix(1e9, 0)
	l.Start(config(), learn.Owner{Budget: budget.New(10), Epoch: epoch})
	l.Run(func(choose func()) { choose() })
	return l, epoch
}

// The estimate of the first call after a pause includes all calls of the last burst, even its slow
// calls, which ended last.
func TestEstimateFor_LooksAgainAfterAPause(t *testing.T) {
	l, epoch := manual(t)
	for burst := range 20 {
		at := epoch.Add(time.Duration(burst) * time.Minute)
		l.EstimateFor(at)
		for i := range 100 {
			took := time.Duration(100+i) * ms / 20 // 5 to 10 ms
			if i >= 88 {
				took = 50 * ms
			}
			l.PrimaryEnded(at.Add(took), took, true)
		}
	}
	next := epoch.Add(20 * time.Minute)
	e := l.EstimateFor(next)
	if e == nil || e.Choice == nil || e.Choice.UnhedgedTail < 45*ms || e.Choice.UnhedgedTail > 55*ms {
		t.Fatalf("%+v after twenty bursts, of which 12%% took 50 ms", e)
	}
	if l.EstimateFor(next.Add(ms)) != e || l.EstimateFor(next.Add(time.Hour)) != e {
		t.Error("a call looks again although none ended")
	}
}

// An outage and its end are detected from a few calls, however low the rate.
func TestChangeOfDistribution_AtFewCalls(t *testing.T) {
	for _, every := range longtest.First(1, []time.Duration{time.Second, 200 * ms, 5 * time.Second}) {
		l, at := manual(t)
		random := simulation.Generator(1, 1, 1)
		usual := testserver.DistributionT(t, "straggler")
		calls := func(n int, plus time.Duration) *learn.Estimate {
			for range n {
				at = at.Add(every)
				l.EstimateFor(at)
				d := usual.Draw(random) + plus
				l.PrimaryEnded(at.Add(d), d, true)
			}
			return l.Estimate()
		}
		if e := calls(longtest.Size(400, 1500), 0); e.Median > 10*ms {
			t.Fatalf("every %v: median %v", every, e.Median)
		}
		if e := calls(120, time.Second); e.Median < 900*ms {
			t.Errorf("every %v: median %v after 120 calls of an outage", every, e.Median)
		}
		if e := calls(240, 0); e.Median > 10*ms {
			t.Errorf("every %v: median %v after 240 calls since its end", every, e.Median)
		}
	}
}
