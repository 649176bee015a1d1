package call

import (
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
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

// GoElsewhere sends hedge n of a hedged call to of(n). It must be called before the race. If the call is
// not hedged, it is a no-op. Admit calls of for each hedge that is due. With atOnce, GoElsewhere may
// call of(1), for plans that are made before the first hedge.
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
	of := c.elsewhere(n)
	var to *destination
	for _, a := range c.ensureAttempts()[:n] {
		if a.to != nil && a.to.target == of.Target && a.to.Conn == of.Conn {
			to = a.to
		}
	}
	if to == nil && of.Target != "" {
		m := c.method.At(of.Target, now)
		to = &destination{target: of.Target, Conn: of.Conn, method: m, settings: m.Settings()}
		if place.Live() {
			to.Record = place.New(of.Target, &m.Counters.SameBackend)
			to.Record.Share(m.Target.Backends)
		}
	}
	c.attempts[n].to = to
	if n == 1 {
		c.Teach(n, (*trigger.Learner).HedgesGoTo)
	}
	return c.at(n)
}

// at returns the destination of attempt n. The primary may end while Admit makes c.attempts.
func (c *Call) at(n int) *destination {
	if n == 0 || c.attempts == nil || c.attempts[n].to == nil {
		return &c.destination
	}
	return c.attempts[n].to
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

// Attempt sets ctx up for attempt n, which is about to be made for the scheduler r. ctx.Made must be called
// when it has been made.
func (c *Call) Attempt(ctx *race.Context, n int, r *registry.Registry, method string) {
	to := &c.destination
	if n > 0 {
		to = c.at(n)
	}
	_, away := to.Conn.(*Channel)
	conn, _ := to.Conn.(*grpc.ClientConn)
	record := to.Record
	if n == 0 && !c.Hedged {
		switch c.why {
		case stats.SwitchedOff, stats.Paused, stats.NoHedgesConfigured, stats.DryRun, stats.InControlGroup:
			record = place.Hidden // hedging is switched off: the child of the policy chooses
		}
	}
	ctx.Begin(r, conn, method, away, record)
}

// Channel returns the channel of hedge n, which was admitted; nil for the call's own, and for n =
// 0, the primary. It may be called concurrently.
func (c *Call) Channel(n int) *Channel {
	to, _ := c.at(n).Conn.(*Channel)
	return to
}

// Place makes a record of the call's picks if the process has a policy of package balancer. It must be
// called before the race. For request and replayable see [place.Record.SetRequest].
func (c *Call) Place(request any, replayable func(any) bool) {
	if c.method == nil || c.Conn == nil || !place.Live() {
		return
	}
	c.Record = place.New(c.target, &c.method.Counters.SameBackend)
	c.Record.Share(c.method.Target.Backends)
	c.Record.SetRequest(request, replayable)
}

// HedgeConn counts an HTTP hedge if its connection has the remote address of its primary's.
func (c *Call) HedgeConn(primary, hedge net.Conn) {
	if from, to := primary.RemoteAddr(), hedge.RemoteAddr(); from != nil && to != nil && from.String() == to.String() {
		c.method.Counters.SameBackend.Add(1)
	}
}

// Patience returns how long a primary that has failed waits for the call's hedges, of which n were
// sent, from now on: twice the longest latency known where they were sent, or the age of the call if
// that is longer. While too few latencies are known, it is at least a minute.
func (c *Call) Patience(n int) time.Duration {
	now, patience := time.Now(), c.Age()
	for to := range n + 1 {
		longest, enough := c.at(to).method.Learner.Longest(now)
		if patience = max(patience, 2*longest); !enough && to > 0 {
			patience = max(patience, time.Minute)
		}
	}
	return patience
}

// WaitsForMessage reports whether Header of a stream waits for the first message: see
// hedge.WithWaitForMessage.
func (c *Call) WaitsForMessage(typeIsKnown func() bool) bool {
	s := c.settings
	return s != nil && s.WaitsForMessage && (s.Acceptable == nil || typeIsKnown())
}

func traced(c *Call) stats.Call {
	m := c.method
	return stats.Call{Context: c.Context, Target: m.Target.Name, Method: m.Name, Names: m.Names()}
}

// Sent implements [race.Policy]. It counts the hedge, at its destination too.
func (c *Call) Sent(n int, failover bool) {
	now, to := time.Now(), c.at(n)
	if c.settings.Guard {
		to.method.Guard.Sent(now)
	}
	if to.method != c.method {
		to.method.Counters.Received.Add(1)
		to.method.Counters.Flush()
		c.method.SentTo(to.method.Target.Name)
	}
	c.settings.Groups.HedgeSent(c.group, now)
	c.method.Counters.Update(func(s *stats.Counts) {
		s.Hedges++
		if failover {
			s.Failovers++
		}
		if n == 1 {
			s.Hedged++
		}
	})
	if traces := c.settings.Traces; len(traces) > 0 {
		settings.Emit(traces, stats.HedgeSent{Call: traced(c), Hedge: n, Age: c.Age(), Destination: to.method.Target.Name})
	}
}

// noteHeldBack keeps the reason for hedge.Report, and reports that hedge n was due and not sent.
func noteHeldBack(c *Call, n int, why stats.Reason) {
	c.why = why
	settings.Emit(c.settings.Traces, stats.HedgeHeldBack{Call: traced(c), Hedge: n, Age: c.Age(), Reason: why})
}

// LoserPanicked counts an attempt that panicked after the call was decided. It may be called at any
// time, from any goroutine.
func (c *Call) LoserPanicked() {
	if c.method != nil {
		c.method.Counters.Update(func(s *stats.Counts) { s.LoserPanics++ })
	}
}
