package call

import (
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
)

// Judge implements [race.Policy]. It decides the meaning of an end, once: the race, the throttle, the
// guard, the learners and the statistics read the event.
func (c *Call) Judge(n int, end race.End, open bool) race.Event {
	e := c.Failure(n, end.Err, end.Trailer)
	e.Kind, e.Attempt, e.Open = race.Ended, uint8(n), end.Open && end.Err != nil
	mayEnd := n == 0 || c.HedgeFinal
	if n > 0 && open && mayEnd && e.End == race.Final && !end.Served {
		e.End = race.NonFatal
	}
	asks := open && c.settings.Acceptable != nil && !c.AnswersLater && (e.End == race.OK || e.End == race.Final && mayEnd)
	if !asks || c.accepts(end) {
		return e
	}
	if end.Rejected != nil {
		end.Rejected()
	}
	if e.End = race.RejectedStatus; end.Err == nil {
		e.End, e.Open = race.RejectedReply, end.Open
	}
	return e
}

// Judges reports whether WithAcceptable is in force for the call.
func (c *Call) Judges() bool { return c.settings != nil && c.settings.Acceptable != nil }

// accepts asks the function of WithAcceptable, unless the attempt has failed after the caller's context
// ended.
func (c *Call) accepts(end race.End) bool {
	reply, err := end.Reply, end.Err
	switch {
	case err != nil && c.Context.Err() != nil:
		return true
	case err == nil && reply == nil && !c.OffWire:
		err = io.EOF // of a stream without a message
	case err != nil && c.http == nil:
		reply = nil
	}
	return c.settings.Acceptable(c.Context, c.method.Name, reply, err)
}

// Failure is verdict. It also reports a failure to the limit of resets at the attempt's destination: see
// [race.Event].Cut.
func (c *Call) Failure(n int, err error, trailer metadata.MD) race.Event {
	e := c.verdict(n, err, trailer)
	if !c.OffWire && e.End == race.NonFatal && c.LegOf(n).method.Target.Resets.NoteFailure(err, time.Now()) {
		e.Failover, e.Cut = true, true
	}
	return e
}

// verdict returns the meaning of the status of attempt n. Package hedgehttp translates HTTP statuses
// before.
//
//	status                              End       besides
//	OK                                  OK        Answers
//	one of hedge.WithFailover           NonFatal  Failover
//	a final one of another destination  NonFatal  Answers, if it may be another server's answer
//	a final one                         Final     Answers
//	any other                           NonFatal  Exhausted, by a rate limit; Failover and Cut, by a cut
func (c *Call) verdict(n int, err error, trailer metadata.MD) race.Event {
	if err == nil {
		return race.Event{Answers: true}
	}
	e := race.Event{End: race.NonFatal, Answers: rpc.Answers.HasStatus(err), Exhausted: rpc.Exhausted(err)}
	switch {
	case c.failsOver(err):
		e.Failover = true
	case c.settings.Final.HasStatus(err) && !(c.LegOf(n).Target != c.Target && ofDestination.HasStatus(err)):
		e.End = race.Final
	}
	switch wait, pushed := rpc.Pushback(trailer); {
	case !pushed:
	case wait < 0:
		e.Pushback = race.PushbackNever
	default:
		e.Pushback, e.Wait = race.PushbackAfter, wait
	}
	return e
}

// ofDestination are the statuses of a server that lacks the method, or rejects credentials that
// another destination may accept.
var ofDestination = rpc.CodesOf(codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied)

var unavailable = rpc.CodesOf(codes.Unavailable)

// failsOver reports whether the failure of an attempt makes the next hedge due. A gateway's timeout
// counts as an unavailable server, and so does a network error of a function of hedge.Do.
func (c *Call) failsOver(err error) bool {
	switch f := c.settings.Failover; {
	case f.HasStatus(err):
		return true
	case f&unavailable == 0:
		return false
	}
	var broken net.Error
	return c.http != nil && status.Code(err) == codes.DeadlineExceeded || c.OffWire && errors.As(err, &broken)
}
