package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// Admit decides whether hedge n, which is due, is sent; n is 1 for the first. turn is how many hedges were considered, this one
// included. The gates of the method's settings are asked one after the other. If all let the hedge pass, it is paid for and counted.
func (c *Call) Admit(n, turn int, so *race.Report) race.Event {
	c.catchUp(so)
	if !c.armed {
		return race.Event{Kind: race.Refused}
	}
	d := feature.Due{
		CallState: &c.CallState, N: n, Turn: turn, Now: time.Now(), Report: so,
		Slow: so.Rejected() == 0 && !so.Repeated,
	}
	if d.Slow && c.Estimate != nil { // a delay that was not learned says nothing about the backend
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

// refund refunds what gates have taken for a hedge that is not sent.
func refund(c *Call, gates []feature.Gate) {
	for _, g := range gates {
		if p, ok := g.(feature.Payer); ok {
			p.Refund(&c.CallState)
		}
	}
}

// notSent counts why a hedge that is due is not sent, and answers the race as the verdict says.
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

// retryFloor is the least time after which a hedge that was held back is considered again: timers are not much more precise.
const retryFloor = 250 * time.Microsecond

// retryAt is the age of the call at which a hedge that is held back is considered again.
//
// Up to twice the delay that is soon, an eighth of the call's age later: where slightly more hedges come due than the budget
// earns, calls that end meanwhile leave the tokens to those that do not, and a slow call loses a fraction of the delay. Then
// it is at three times the delay, and from there on at twice the call's age, so that in an outage a call that lasts long is
// looked at a handful of times.
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
