package call

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// Failure says how an attempt of the call ended with err: whether the server looked at the request and answered, what the trailer
// says of further attempts, and whether the call may be sent again.
func (c *Call) Failure(err error, trailer metadata.MD) race.Event {
	e := race.Event{End: race.NonFatal}
	if c.settings.Final.HasStatus(err) {
		e.End = race.Final
	}
	e.Repeat = !c.OffWire && e.End == race.NonFatal && c.settings.Resets.Failed(err, time.Now())
	switch wait, pushed := rpc.Pushback(trailer); {
	case !pushed:
	case wait < 0:
		e.Pushback = race.PushbackNever
	default:
		e.Pushback, e.Wait = race.PushbackAfter, wait
	}
	return e
}

// catchUp handles what has happened in the race since the last time. It tells the observers of each attempt that has failed while
// the caller waited, once. It refunds hedges that were dropped: at most the last one that was paid for, because one hedge is
// prepared at a time. Cancellation and expired deadlines do not count as failures.
func (c *Call) catchUp(r *race.Report) {
	for n := range r.Hedges + 1 {
		a := &r.Attempts[n]
		if !a.Failed() || a.CutShort || c.failures&(1<<n) != 0 || goneBefore(c, r, n) {
			continue
		}
		c.failures |= 1 << n
		tellFailure(c, a.End, a.Pushback)
		if a.Pushback != race.NoPushback {
			tellHeldBack(c, r.Hedges+1, stats.PushedBack)
		}
	}
	for ; int(c.dropped) < r.Dropped; c.dropped++ {
		refund(c, c.settings.Gates)
	}
}

func tellFailure(c *Call, end race.EndKind, p race.Pushback) {
	for _, o := range c.settings.Observers {
		if o, ok := o.(feature.FailureObserver); ok {
			o.Failed(end, p)
		}
	}
	if p != race.NoPushback {
		c.method.Counters.Update(func(s *stats.Counts) { s.PushedBack++ })
	}
}

// TracksFailures reports whether the trailers of failures must be reported: the target has a throttle, or the method a
// hedgingPolicy, by which a failure sends the next hedge.
func (c *Call) TracksFailures() bool {
	return c.settings != nil && (c.settings.Policy != nil || c.settings.Features.Throttle != nil)
}

// PrimaryContext returns the context of the primary, on a connection with the given target. If the process has a policy of
// package balancer, the context carries the record of the backends that the call has used. Call it before the race, and only
// for a call that may be hedged.
func (c *Call) PrimaryContext(ctx context.Context, target string) context.Context {
	if c.method == nil || c.Conn == nil || !place.Live() {
		return ctx
	}
	ctx, c.Record = place.Primary(ctx, target, (*registry.SameBackendCounter)(&c.method.Counters), c.settings.OtherBackendOnly)
	return ctx
}

// UnhedgedContext returns the context of a call that is not hedged. If hedging is switched off for it, a policy of package balancer
// lets the child place it.
func (c *Call) UnhedgedContext(ctx context.Context) context.Context {
	switch c.why {
	case stats.SwitchedOff, stats.Paused, stats.NoHedgesConfigured, stats.DryRun, stats.InControlGroup:
		if place.Live() {
			return place.Hide(ctx)
		}
	}
	return ctx
}

// HedgeAnswered says that a hedge, whose context HedgeContext has returned, has answered: a stream with its first message.
func HedgeAnswered(ctx context.Context) {
	if h, ok := ctx.(*place.Hedge); ok {
		h.Answered()
	}
}

// HedgePeer says to whom a hedge of the call went, once it has ended. It may be called at any time, from any goroutine. An
// unknown peer has no address.
func (c *Call) HedgePeer(p *peer.Peer) {
	if conn, ok := c.Conn.(*grpc.ClientConn); ok {
		c.method.Target.HedgePeer(conn, p, c.Record)
	}
}

// Accepts asks the function of WithAcceptable about an attempt of a race that is judged. If err is
// not nil, only an HTTP request has a reply. The function is not asked about a failure once the
// caller has gone: then Accepts returns true. It may be called concurrently.
func (c *Call) Accepts(reply any, err error) bool {
	if err != nil {
		if c.Context.Err() != nil {
			return true
		}
		if !c.http {
			reply = nil
		}
	}
	return c.settings.Acceptable(c.Context, c.Method, reply, err)
}

// WaitsForMessage reports whether Header of a stream waits for the first message: hedge.WithWaitForMessage names its method, and, if
// the message is to be judged, its type is known.
func (c *Call) WaitsForMessage(typeIsKnown func() bool) bool {
	s := c.settings
	return s != nil && s.WaitsForMessage && (s.Acceptable == nil || typeIsKnown())
}

// AcceptsNone is Accepts of a stream that has ended without a message.
func AcceptsNone(c *Call) bool { return c.settings.Acceptable(c.Context, c.Method, nil, io.EOF) }
