package call

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// Failure implements [race.Policy].
func (c *Call) Failure(n int, err error, trailer metadata.MD) race.Event {
	e := race.Event{End: race.NonFatal}
	switch {
	case c.failsOver(err):
		e.Failover = true
	case c.settings.Final.HasStatus(err) && !(c.IsElsewhere(n) && ofDestination.HasStatus(err)):
		e.End = race.Final
	}
	switch wait, pushed := rpc.Pushback(trailer); {
	case !pushed:
	case wait < 0:
		e.Pushback = race.PushbackNever
	default:
		e.Pushback, e.Wait = race.PushbackAfter, wait
	}
	e.Repeat = !c.OffWire && e.End == race.NonFatal && c.at(n).method.Target.Resets.NoteFailure(err, time.Now())
	return e
}

// ofDestination are the statuses of a server that lacks the method, or rejects credentials that
// another destination may accept.
var ofDestination = rpc.CodesOf(codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied)

// failsOver reports whether the failure of an attempt makes the next hedge due. A gateway's timeout
// counts as an unavailable server, and so does a network error of a function of hedge.Do.
func (c *Call) failsOver(err error) bool {
	f := c.settings.Failover
	if f.HasStatus(err) || f&rpc.CodesOf(codes.Unavailable) == 0 {
		return f.HasStatus(err)
	}
	var broken net.Error
	return c.http != nil && status.Code(err) == codes.DeadlineExceeded || c.OffWire && errors.As(err, &broken)
}

// PrimaryContext returns the context of the primary on a connection with the given target, with the
// call's record if the process has a policy of package balancer. It must be called before the race.
// For request and replayable see [place.Record.SetRequest].
func (c *Call) PrimaryContext(
	ctx context.Context, target string, request any, replayable func(any) bool,
) context.Context {
	if c.method == nil || c.Conn == nil || !place.Live() {
		return ctx
	}
	ctx, c.Record = place.Primary(ctx, target, &c.method.Counters.SameBackend, c.settings.OtherBackendOnly)
	c.Record.Share(c.method.Target.Backends)
	c.Record.SetRequest(request, replayable)
	return ctx
}

// UnhedgedContext returns the context of a call that is not hedged. If hedging is switched off for
// the call, a policy of package balancer lets its child choose the backend. A call under a stream's
// context is not placed as an attempt of the stream.
func (c *Call) UnhedgedContext(ctx context.Context) context.Context {
	if !place.Live() {
		return ctx
	}
	switch c.why {
	case stats.SwitchedOff, stats.Paused, stats.NoHedgesConfigured, stats.DryRun, stats.InControlGroup:
		return place.Hide(ctx)
	}
	return place.Forget(ctx)
}

// HedgeConn records the connections of an HTTP hedge and of its primary.
func (c *Call) HedgeConn(primary, hedge net.Conn) {
	if c.method.Target.HedgeConn(primary, hedge) {
		c.method.Counters.SameBackend.Add(1)
	}
}

// Accepts calls the function of WithAcceptable for an attempt of a judged race, unless the attempt
// has failed after the caller's context ended. It may be called concurrently.
func (c *Call) Accepts(reply any, err error) bool {
	if err != nil {
		if c.Context.Err() != nil {
			return true
		}
		if c.http == nil {
			reply = nil
		}
	}
	return c.settings.Acceptable(c.Context, c.method.Name, reply, err)
}

// WaitsForMessage reports whether Header of a stream waits for the first message: see
// hedge.WithWaitForMessage.
func (c *Call) WaitsForMessage(typeIsKnown func() bool) bool {
	s := c.settings
	return s != nil && s.WaitsForMessage && !c.ByPolicy() && (s.Acceptable == nil || typeIsKnown())
}

// AcceptsNone is Accepts for a stream that has ended without a message.
func AcceptsNone(c *Call) bool { return c.settings.Acceptable(c.Context, c.method.Name, nil, io.EOF) }

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
