package engine

import (
	"github.com/grpchedge/hedge/internal/codeset"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/feature/guard"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/stats"
)

// traffic is what the guard measures failures by: the calls so far, a costly one of the target counting as several.
func (m *method) traffic() guard.Traffic {
	return guard.Traffic{Method: float64(m.counters.calls.Load()), Target: m.target.budget.Calls()}
}

// afford pays for hedge n, which is due at now, if the guard admits it. Otherwise it returns why not.
func (c *Call) afford(now time.Time, n int, urgent bool) stats.Reason {
	// With a hedgingPolicy, the hedge may be the only hope of a call whose attempts have failed, and is not for the guard.
	if guards := c.settings.Guard && (c.settings.policy == nil || c.failures == 0); guards && !c.guardAdmits(now, n) {
		return stats.Guarded
	}
	if !c.payment.pay(now, urgent) {
		return stats.BudgetExhausted
	}
	return stats.NoReason
}

// guardAdmits reports whether the share of hedges that the guard admits includes hedge n. However often that is asked, a hedge
// has one ticket.
func (c *Call) guardAdmits(now time.Time, n int) bool {
	share := c.method.guard.Share(now, c.method.traffic())
	if share == 1 {
		return true
	}
	if c.ticketOf != n {
		c.ticketOf, c.ticket = n, c.method.guard.Ticket()
	}
	return c.ticket < share
}

// failing tells the guard that the call was made without a race, or its race was untouched, and failed with err.
func (c *Call) failing(err error) {
	if c.method != nil {
		if exhausted(err) {
			c.tellExhausted(false)
		}
		c.callFailed(err)
	}
}

// raceFailed tells the guard of the failures in a race.
func (c *Call) raceFailed(r *race.Report) {
	hedge := false
	for n := 1; n <= r.Hedges; n++ {
		// A server that turns hedges away, and says so, needs no guard.
		hedge = hedge || r.Attempts[n].Pushback == race.NoPushback && ranOut(&r.Attempts[n])
	}
	primary := ranOut(&r.Attempts[0])
	if primary || hedge {
		c.tellExhausted(!primary)
	}
	c.callFailed(r.Err)
}

func ranOut(a *race.AttemptReport) bool { return a.HasEnded && !a.CutShort && exhausted(a.Err) }

// tellExhausted tells the guard that an attempt failed with RESOURCE_EXHAUSTED. If it was a hedge, and its primary did not fail
// with it, alone is true.
func (c *Call) tellExhausted(alone bool) {
	if c.settings.Guard {
		c.method.guard.Exhausted(time.Now(), c.method.traffic(), alone)
	}
}

// fine are the statuses that are no failures for the guard's trials. RESOURCE_EXHAUSTED has a judgement of its own.
var fine = codeset.Answers | codeset.Of(codes.Canceled, codes.ResourceExhausted)

// callFailed tells the guard how the call ended for its caller. A deadline that passes is a failure.
func (c *Call) callFailed(err error) {
	if c.settings.Guard && !fine.HasStatus(err) {
		c.method.guard.Failed(time.Now(), c.method.traffic())
	}
}

func exhausted(err error) bool { return status.Code(err) == codes.ResourceExhausted }
