package call

import (
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// traced is the call as the functions of a trace see it.
func traced(c *Call) stats.Call {
	return stats.Call{Context: c.Context, Target: c.Target, Method: c.Method}
}

// Sent says that hedge n was sent.
func (c *Call) Sent(n int) {
	for _, t := range c.settings.Traces {
		if t.HedgeSent != nil {
			t.HedgeSent(stats.HedgeSent{Call: traced(c), Hedge: n, Age: c.Age()})
		}
	}
}

// tellHeldBack says why hedge n, which is due, is not sent.
func tellHeldBack(c *Call, n int, why stats.Reason) {
	c.why = why
	for _, t := range c.settings.Traces {
		if t.HedgeHeldBack != nil {
			t.HedgeHeldBack(stats.HedgeHeldBack{Call: traced(c), Hedge: n, Age: c.Age(), Reason: why})
		}
	}
}

// tell says what happened in a race, after it was booked.
func (c *Call) tell(r *race.Report) {
	if c.report != nil {
		c.report(stats.Outcome{
			Attempts: r.Hedges + 1, Winner: r.Winner, Delay: c.Delay, Reason: c.why,
			Poor: r.Attempts[r.Winner].End.IsPoor(),
		})
	}
	if r.Hedges == 0 {
		return
	}
	for _, t := range c.settings.Traces {
		if t.AttemptLost != nil && r.CallerGone == race.CallerStayed {
			for n := range r.Hedges + 1 {
				if a := &r.Attempts[n]; a.CutShort {
					t.AttemptLost(stats.AttemptLost{Call: traced(c), Attempt: n, Ran: r.DecidedAt - a.SentAt})
				}
			}
		}
		if t.CallDecided != nil {
			t.CallDecided(stats.CallDecided{
				Call: traced(c), Attempts: r.Hedges + 1, Winner: r.Winner, Delay: c.Delay, Age: r.DecidedAt, Err: r.Err,
			})
		}
	}
}

func tellOddCost(c *Call, cost float64) {
	for _, t := range c.settings.Traces {
		if t.OddCost != nil {
			t.OddCost(settings.OddCost{Target: c.Target, Method: c.Method, Cost: cost})
		}
	}
}

// reportUnhedged says what happens to a call unless it races.
func reportUnhedged(c *Call) {
	if c.report == nil {
		return
	}
	o := stats.Outcome{Attempts: 1, Reason: c.why}
	if c.armed {
		o.Delay = c.Delay
	}
	c.report(o)
}
