package balancer_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
)

// In TestSilence_FollowedLosers one backend of three is slower by 200 ms for good, so that its primaries lose to their hedges and
// it is silent, until patient probes find out that it is only slow. Losers that are followed get their answers there, which ends
// no silence: as many primaries are moved as without follow-up.
func TestSilence_FollowedLosers(t *testing.T) {
	longtest.Simulation(t)
	slow := func(time.Time) testserver.Script {
		distribution := testserver.LogNormal(5*ms, 2*ms)
		return func(a testserver.Attempt) testserver.Plan {
			delay := a.Draw(distribution)
			if a.Backend == stalled {
				delay += 200 * ms
			}
			return testserver.Plan{Delay: delay}
		}
	}
	moved := func(options ...hedge.Option) int64 {
		options = append(options, hedge.WithBudgetPercent(50)) // the delay excludes the slow backend at any time
		_, row := calmRun(t, calmDistribution{rate: 200, options: options, script: slow}, 6_000, over(roundRobin))
		t.Logf("%d of %d moved", row.Moved, row.Calls)
		return row.Moved
	}
	with, without := moved(), moved(hedge.WithFollowUp(0))
	if with < without*9/10 || with > without*11/10 {
		t.Errorf("%d primaries were moved with follow-up, and %d without", with, without)
	}
}
