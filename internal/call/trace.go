package call

import (
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

func traced(c *Call) stats.Call {
	m := c.method
	return stats.Call{Context: c.Context, Target: m.Target.Name, Method: m.Name, Names: m.Names()}
}

// Sent implements [race.Policy].
func (c *Call) Sent(n int) {
	settings.Emit(c.settings.Traces, stats.HedgeSent{
		Call: traced(c), Hedge: n, Age: c.Age(), Destination: c.at(n).method.Target.Name,
	})
}

// noteHeldBack keeps the reason for hedge.Report, and reports that hedge n was due and not sent.
func noteHeldBack(c *Call, n int, why stats.Reason) {
	c.why = why
	settings.Emit(c.settings.Traces, stats.HedgeHeldBack{Call: traced(c), Hedge: n, Age: c.Age(), Reason: why})
}

// FillOutcome fills in the outcome of hedge.Report for a race that is decided, once.
func (c *Call) FillOutcome(r *race.Report) {
	if c.report != nil {
		c.report(stats.Outcome{
			Attempts: r.Hedges + 1, Winner: r.Winner, Delay: c.Delay, Reason: c.why,
			Rejected: r.Attempts[r.Winner].End.IsRejected(),
		})
		c.report = nil
	}
}

func traceRace(c *Call, r *race.Report) {
	c.FillOutcome(r)
	if r.Hedges == 0 {
		return
	}
	traces := c.settings.Traces
	for n := range r.Hedges + 1 {
		if a := &r.Attempts[n]; a.CutShort && !r.CallerGone {
			settings.Emit(traces, stats.AttemptLost{Call: traced(c), Attempt: n, Ran: r.DecidedAt - a.SentAt})
		}
	}
	settings.Emit(traces, stats.CallDecided{
		Call: traced(c), Attempts: r.Hedges + 1, Winner: r.Winner, Delay: c.Delay, Age: r.DecidedAt, Err: r.Err,
	})
}

// reportUnhedged fills in the outcome of hedge.Report that FillOutcome replaces if the call races.
func reportUnhedged(c *Call) {
	if c.report == nil {
		return
	}
	o := stats.Outcome{Attempts: 1, Reason: c.why}
	if c.Hedged() {
		o.Delay = c.Delay
	}
	c.report(o)
}
