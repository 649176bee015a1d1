package call

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Destination is where a hedge goes. The zero Destination is the call's own target and connection.
type Destination struct {
	Target string // "": the call's own
	Conn   Conn   // a *Channel for a gRPC call; nil: always ready
}

// destination is where attempts of a call go, with the limits that hold for them: the method's guard,
// the throttle and the resets of its target, and the silence of its backends. For pushbacks see told.
// The budget of the call's own target pays for every hedge.
type destination struct {
	target string        // of its connection; targets with one name of hedge.WithTargetName share a method
	Conn   Conn          // nil: always ready
	Record *place.Record // the backends that attempts have used; nil without a policy of package balancer

	method   *registry.Method
	settings *settings.Settings // in force when it was chosen
}

// GoElsewhere sends hedge n of a hedged call to of(n), which Admit calls for each hedge that is due. It
// must be called before the race. If the call is not hedged, it is a no-op. atOnce allows a call of of
// now, for plans that are made before the first hedge.
func (c *Call) GoElsewhere(of func(n int) Destination, atOnce bool) {
	if !c.Hedged {
		return
	}
	c.elsewhere = of
	c.Teach(0, func(l, _ *trigger.Learner) {
		if l.HedgesGoElsewhere() && atOnce {
			c.toward(1, c.Start)
		}
	})
}

// toward sets the destination of hedge n, which is considered at now. Hedges to the same one share it.
func (c *Call) toward(n int, now time.Time) *destination {
	if c.elsewhere == nil {
		return &c.destination
	}
	if c.to == nil {
		c.to = new([race.MaxAttempts]*destination)
	}
	of := c.elsewhere(n)
	if c.to[n] = nil; of.Target != "" {
		same := func(d *destination) bool { return d != nil && d.target == of.Target && d.Conn == of.Conn }
		if i := slices.IndexFunc(c.to[:n], same); i >= 0 {
			c.to[n] = c.to[i]
		} else {
			m := c.method.At(of.Target, now)
			c.to[n] = &destination{target: of.Target, Conn: of.Conn, method: m, settings: m.Settings()}
			if place.Live() {
				c.to[n].Record = place.Elsewhere(of.Target, &m.Counters.SameBackend, m.Target.Backends)
			}
		}
	}
	if n == 1 {
		c.Teach(n, (*trigger.Learner).HedgesGoTo)
	}
	return c.at(n)
}

// at returns the destination of attempt n. The primary may end while Admit sets c.to for the first hedge.
func (c *Call) at(n int) *destination {
	if n == 0 || c.to == nil || c.to[n] == nil {
		return &c.destination
	}
	return c.to[n]
}

// IsElsewhere reports whether attempt n goes to another destination than the primary.
func (c *Call) IsElsewhere(n int) bool { return c.at(n).target != c.target }

// Teach calls lesson with each learner that learns from the call, the method's and the class's, and
// with the same one at the destination of attempt n.
func (c *Call) Teach(n int, lesson func(l, to *trigger.Learner)) {
	to := c.at(n).method
	lesson(&c.method.Learner, &to.Learner)
	if c.class == nil {
		return
	}
	class := c.class
	if to != c.method {
		class = to.Class(c.class.Name, c.Start)
	}
	lesson(&c.class.Learner, &class.Learner)
}

// HedgeContext returns the context of hedge n, which was admitted. It may be called concurrently
// after PrimaryContext.
func (c *Call) HedgeContext(ctx context.Context, n int) context.Context {
	if r := c.at(n).Record; r != nil {
		return r.Hedge(ctx)
	}
	return ctx
}

// HedgeAnswered records that the hedge with the context ctx, from HedgeContext, has answered. A
// stream answers with its first message.
func HedgeAnswered(ctx context.Context) {
	if h, ok := ctx.(*place.Hedge); ok {
		h.Answered()
	}
}

// HedgePeer records the peer of hedge n, which a gRPC hedge knows at its end, unless the hedge went
// elsewhere. It may be called at any time, concurrently.
func (c *Call) HedgePeer(n int, p *peer.Peer) {
	if conn, ok := c.Conn.(*grpc.ClientConn); c.at(n) == &c.destination && ok && conn != nil {
		c.method.Target.HedgePeer(conn, p, c.Record)
	}
}

// Channel returns the channel of hedge n, which was admitted; nil for the call's own, and for n =
// 0, the primary. It may be called concurrently.
func (c *Call) Channel(n int) *Channel {
	to, _ := c.at(n).Conn.(*Channel)
	return to
}

// told returns the ages until which the destination of the hedge wants no attempt of the call: by its
// pushbacks, and for a delay after it turned a hedge away.
func (d *due) told() (pushedBack, turnedAway time.Duration) {
	for k, a := range d.race.Attempts[:d.n] {
		if d.at(k).target != d.to.target {
			continue
		}
		if pushedBack = max(pushedBack, a.NotBefore); a.TurnedAway {
			turnedAway = max(turnedAway, a.EndedAt+d.Delay)
		}
	}
	return pushedBack, turnedAway
}

// noteLate records that the attempt before the hedge is late. At another destination, the attempt is
// late by the delay of that destination's primaries, if that is longer.
func (d *due) noteLate() {
	last := d.at(d.n - 1)
	if e := last.method.Learner.Estimate(); e != nil && last != &d.destination &&
		d.age-d.race.Attempts[d.n-1].SentAt < e.Delay {
		return
	}
	if silent := last.Record.NoteLate(d.n, d.now, d.Delay); silent != "" {
		settings.Emit(d.settings.Traces, settings.SilentBackend{Target: last.method.Target.Name, Address: silent})
	}
}

// takeReset takes a reset of the call's target and of the destination of hedge n, or of neither: the
// loser may be at either.
func (c *Call) takeReset(n int, now time.Time) bool {
	own, to := c.method.Target, c.at(n).method.Target
	if !own.Resets.Admit(now) {
		return false
	}
	if to != own && !to.Resets.Admit(now) {
		own.Resets.Refund()
		return false
	}
	c.hedges.resets |= 1 << n
	return true
}

// refundReset gives back what takeReset took for hedge n, if anything.
func (c *Call) refundReset(n int) {
	if c.hedges.resets&(1<<n) == 0 {
		return
	}
	c.hedges.resets &^= 1 << n
	c.method.Target.Resets.Refund()
	if to := c.at(n).method.Target; to != c.method.Target {
		to.Resets.Refund()
	}
}
