package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// Admit decides whether hedge n, which is due, is sent; n is 1 for the first. turn counts the
// hedges that were considered, including hedge n. Admit asks the method's gates in order. A hedge
// that passes all gates is paid for and counted.
func (c *Call) Admit(n, turn int, so *race.Report) race.Event {
	c.catchUp(so)
	if !c.armed {
		return race.Event{Kind: race.Refused}
	}
	d := feature.Due{
		CallState: &c.CallState, N: n, Turn: turn, Now: time.Now(), Report: so,
		Slow: so.Rejected() == 0 && !so.Repeated, OneConnection: c.method.Target.OneConnection(),
	}
	if d.Busy = busy(&d); d.Busy {
		c.Busy = true
	} else if d.Slow && !so.Attempts[n-1].TurnedAway && c.Estimate != nil { // without a learned delay, lateness is no sign
		if silent := c.Record.Late(n, d.Now, c.Delay); silent != "" {
			settings.Tell(c.settings.Traces, settings.SilentBackend{Target: c.Target, Address: silent})
		}
	}
	for n, g := range c.settings.Gates {
		if v := g.Admit(&d); v != feature.Pass {
			refund(c, c.settings.Gates[:n])
			return notSent(c, &d, v)
		}
	}
	c.heldBack, c.why = stats.NoReason, stats.NoReason
	for _, o := range c.settings.Observers {
		if o, ok := o.(feature.HedgeObserver); ok {
			o.Admitted(&d)
		}
	}
	c.method.Counters.Update(func(s *stats.Counts) {
		s.Hedges++
		if n == 1 {
			s.Hedged++
		}
	})
	return race.Event{Kind: race.Admitted}
}

// busyShare is the share of a call's age by which a busy process delays what is due. The goroutines
// of a call wait for a processor about four times, so that a quarter of the age is the process's
// own. A call that grows old is hedged in the end, however busy the process is.
const busyShare = 16

// busy reports whether a slow call may be late because this process is short of processor time.
func busy(d *feature.Due) bool {
	return d.Slow && runqueue.Busy(d.Age()-d.Report.Due, d.Age()/busyShare)
}

// refund returns to the gates what they have taken for a hedge that is not sent.
func refund(c *Call, gates []feature.Gate) {
	for _, g := range gates {
		if p, ok := g.(feature.Payer); ok {
			p.Refund(&c.CallState)
		}
	}
}

// notSent counts the reason of verdict v, and returns the race's event for it.
func notSent(c *Call, d *feature.Due, v feature.Verdict) race.Event {
	e := race.Event{Kind: v.Event, Until: v.Until}
	waits := v.Event == race.HeldBack && v.Until == 0
	if v.Reason != stats.NoReason && !(waits && c.heldBack == v.Reason) {
		c.method.Counters.HeldBack(v.Reason)
		tellHeldBack(c, d.N, v.Reason)
		if registry.PreventsHedges(v.Reason) {
			c.method.NoteUnhedgeable()
		}
	}
	if waits {
		c.heldBack = v.Reason
		e.Until = retryAt(d)
	}
	return e
}

// retryFloor is the least time after which a hedge that was held back is considered again. Timers
// are hardly more precise.
const retryFloor = 250 * time.Microsecond

// retryAt returns the age at which a hedge that is held back is considered again:
//
//	age < 2 delay    an eighth of the age later
//	age < 3 delay    at 3 delay
//	else             at twice the age
//
// The first retries are close: if slightly more hedges are due than the budget earns, a call that
// ends leaves its token to a slower call, which loses a fraction of the delay. Later retries are
// rare, so that a long call in an outage costs little.
func retryAt(d *feature.Due) time.Duration {
	age := d.Age()
	wait := age
	switch {
	case age < 2*d.Delay:
		wait = min(age/8, 2*d.Delay-age)
	case age < 3*d.Delay:
		wait = 3*d.Delay - age
	}
	return age + max(wait, retryFloor)
}
