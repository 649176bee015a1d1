package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Destination is where an attempt goes. The zero Destination is the call's own target and
// connection.
type Destination struct {
	Target string // "": the call's own
	Conn   Conn   // nil: always ready

	channel *Channel // nil for calls that are not gRPC's
}

// destinations are where the hedges of a call go. The budget of the call's target pays for every
// hedge. Guard, throttle, pushbacks and resets are those of the destination.
type destinations struct {
	of   func(n int) Destination
	sent [race.MaxAttempts]struct { // by attempt; written before the hedge is sent
		method *registry.Method
		Destination
	}
}

// GoElsewhere sends hedge n of a hedged call to of(n), which Admit calls for each hedge that is due.
// It must be called before the race. If the call is not hedged, it is a no-op.
func (c *Call) GoElsewhere(of func(n int) Destination) {
	if c.Hedged() {
		c.elsewhere = &destinations{of: of}
		c.Teach((*trigger.Learner).HedgesGoElsewhere)
	}
}

// toward sets the destination of hedge n, which is considered at now.
func (c *Call) toward(n int, now time.Time) {
	if c.elsewhere == nil {
		return
	}
	to := &c.elsewhere.sent[n]
	if to.Destination, to.method = c.elsewhere.of(n), c.method; to.Target != "" {
		to.method = c.method.At(to.Target, now)
	}
	if n == 1 {
		c.Teach(func(l *trigger.Learner) { l.HedgesGoTo(&c.method.Learner, &to.method.Learner) })
	}
}

// at returns the method at the destination of attempt n.
func (c *Call) at(n int) *registry.Method {
	if n == 0 || c.elsewhere == nil {
		return c.method
	}
	return c.elsewhere.sent[n].method
}

// away reports whether attempt n uses another connection than the call's.
func (c *Call) away(n int) bool {
	return n > 0 && c.elsewhere != nil && c.elsewhere.sent[n].Target != ""
}

// connOf returns the connection of attempt n.
func (c *Call) connOf(n int) Conn {
	if c.away(n) {
		return c.elsewhere.sent[n].Conn
	}
	return c.Conn
}

// pushedBackUntil returns the age before which the destination of hedge n wants no attempt, by the
// pushbacks of earlier attempts of the call.
func (d *due) pushedBackUntil() (until time.Duration) {
	for k := range d.n {
		if d.elsewhere != nil && d.at(k).Target == d.at(d.n).Target {
			until = max(until, d.race.Attempts[k].NotBefore)
		}
	}
	return until
}

// takeReset takes a reset of the call's target and of the destination of hedge n, or of neither.
func (c *Call) takeReset(n int, now time.Time) bool {
	own, to := c.method.Target, c.at(n).Target
	if !own.Resets.Admit(now) {
		return false
	}
	if to != own && !to.Resets.Admit(now) {
		own.Resets.Refund()
		return false
	}
	return true
}

// refundReset gives back what takeReset took for hedge n.
func (c *Call) refundReset(n int) {
	c.method.Target.Resets.Refund()
	if to := c.at(n).Target; to != c.method.Target {
		to.Resets.Refund()
	}
}

// throttle returns the throttle of the destination of attempt n.
func (c *Call) throttle(n int) *registry.Throttle {
	if m := c.at(n); m != c.method {
		return m.Settings().Throttle
	}
	return c.settings.Throttle
}
