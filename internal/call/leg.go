package call

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Leg is a destination of a call's attempts, with the guard of the method, the throttle and the resets
// of the target, and the silence of the backends there. For pushbacks see due.pushbacks. The budget of
// the call's own target pays for every hedge.
type Leg struct {
	Target  string        // of the connection; targets with one name of hedge.WithTargetName share a method
	Conn    Conn          // nil: always ready
	Channel *Channel      // Conn of a hedge; nil for the call's own connection
	Record  *place.Record // the backends that attempts have used; nil without a policy of package balancer

	method   *registry.Method
	settings *settings.Settings // in force when the leg was chosen
}

// Conn is the connection that a call uses. *grpc.ClientConn implements it.
type Conn interface {
	GetState() connectivity.State
}

// RecordPicks makes the record of the call's picks if the process has a policy of package balancer.
// It must be called before the race. For request and replayable see [place.Record.SetRequest].
func (c *Call) RecordPicks(request any, replayable func(any) bool) {
	if c.method == nil || c.Conn == nil || !place.Live() {
		return
	}
	c.Record = place.New(c.Target, &c.method.Counters.SameBackend)
	c.Record.Share(c.method.Target.Backends)
	c.Record.SetRequest(request, replayable)
}

// GoElsewhere gives each hedge n of a hedged call the leg to a target and a connection, a *Channel
// or nil, that of(n) returns; "" is the call's own leg. It must be called before the race. If the
// call is not hedged, it is a no-op. Admit calls of for each hedge that is due. If atOnce is set,
// GoElsewhere may call of(1), so that the learner knows the destination before the first hedge.
func (c *Call) GoElsewhere(of func(n int) (target string, conn Conn), atOnce bool) {
	if !c.Hedged {
		return
	}
	c.elsewhere = of
	c.Teach(0, func(l, _ *trigger.Learner) {
		if l.HedgesGoElsewhere() && atOnce {
			chooseLeg(c, 1, c.Start) // the learner then knows the destination
		}
	})
}

// chooseLeg chooses the leg of hedge n, which is considered at now, and records the destination of
// first hedges. Hedges to one destination share a leg.
func chooseLeg(c *Call, n int, now time.Time) {
	target, conn := c.elsewhere(n)
	leg := &c.Leg
	for _, h := range ensureHeld(c).of[1:n] {
		if h.to != &c.Leg && h.to.Target == target && h.to.Conn == conn {
			leg = h.to
		}
	}
	if leg == &c.Leg && target != "" {
		m := c.method.At(target, now)
		to, _ := conn.(*Channel)
		leg = &Leg{Target: target, Conn: conn, Channel: to, method: m, settings: m.Settings()}
		if place.Live() {
			leg.Record = place.New(target, &m.Counters.SameBackend)
			leg.Record.Share(m.Target.Backends)
		}
	}
	c.held.of[n].to = leg
	if n == 1 {
		c.Teach(n, (*trigger.Learner).HedgesGoTo)
	}
}

// SetUp sets ctx up for an attempt, which is about to be made for the scheduler r. ctx.Made must be
// set when the attempt has been made.
func (l *Leg) SetUp(ctx *race.Context, r *registry.Registry, method string) {
	conn, _ := l.Conn.(*grpc.ClientConn)
	ctx.Describe(r, conn, method, l.Channel != nil, l.Record)
}

// NoteHedgeConn counts an HTTP hedge whose connection has the same remote address as the connection
// of its primary.
func (c *Call) NoteHedgeConn(primary, hedge net.Conn) {
	if from, to := primary.RemoteAddr(), hedge.RemoteAddr(); from != nil && to != nil && from.String() == to.String() {
		c.method.Counters.SameBackend.Add(1)
	}
}

// Channels are the connections that hedges use in place of their call's own.
type Channels struct {
	list []Channel
	Of   func(n int) (target string, conn Conn) // see Call.GoElsewhere
}

// Channel is one of the connections.
type Channel struct {
	grpc.ClientConnInterface
	CC     *grpc.ClientConn // nil for a channel that is not gRPC's own
	target string
}

// GetState returns READY for a channel that does not know its state.
func (c *Channel) GetState() connectivity.State {
	if known, ok := c.ClientConnInterface.(Conn); ok {
		return known.GetState()
	}
	return connectivity.Ready
}

// ChannelsOf returns the channels for connections; nil if there are none. It ignores nil
// connections.
func ChannelsOf(conns []grpc.ClientConnInterface) *Channels {
	c := &Channels{}
	for i, conn := range conns {
		cc, own := conn.(*grpc.ClientConn)
		if conn == nil || own && cc == nil {
			continue
		}
		to := Channel{ClientConnInterface: conn, CC: cc, target: fmt.Sprintf("(hedge destination %d)", i+1)}
		if named, ok := conn.(interface{ Target() string }); ok {
			to.target = cmp.Or(named.Target(), to.target)
		}
		c.list = append(c.list, to)
	}
	if len(c.list) == 0 {
		return nil
	}
	c.Of = func(n int) (string, Conn) {
		to := c.at(n)
		return to.target, to
	}
	return c
}

// at returns the channel of hedge n. The channels take turns. A channel that is closed or fails to
// connect passes its turn to the next one: otherwise one destination that is down would hold back
// every hedge.
func (c *Channels) at(n int) *Channel {
	turn := (n - 1) % len(c.list)
	for i := range c.list {
		next := &c.list[(turn+i)%len(c.list)]
		if usable(next.GetState(), true) {
			return next
		}
	}
	return &c.list[turn]
}
