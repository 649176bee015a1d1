package trigger_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/trigger"
)

// manual returns a learner that makes choices synchronously, and the start of its clock.
func manual(t *testing.T) (l *trigger.Learner, epoch time.Time) {
	t.Helper()
	l, epoch = &trigger.Learner{}, time.Unix(1e9, 0)
	l.Start(config(), trigger.Owner{Budget: budget.New(10), Epoch: epoch})
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
