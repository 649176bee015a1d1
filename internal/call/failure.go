package call

import (
	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature/answer"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/wire"
	"github.com/grpchedge/hedge/stats"
)

// Failure says how an attempt of the call ended with err: whether the server looked at the request and answered, whether its
// connection was cut, and what the trailer says of further attempts.
func (c *Call) Failure(n int, err error, seen race.Seen) race.Event {
	e := c.failureOf(err, seen.Trailer)
	if !c.OffWire {
		c.settings.Resets.Judge(&e, err, seen, c.Start, c.Conn)
	}
	return e
}

// failureOf is Failure without a look at the connection.
func (c *Call) failureOf(err error, trailer metadata.MD) race.Event {
	e := race.Event{End: race.NonFatal}
	if c.final().HasStatus(err) {
		e.End = race.Final
	}
	switch wait, pushed := wire.Pushback(trailer); {
	case !pushed:
	case wait < 0:
		e.Pushback = race.PushbackNever
	default:
		e.Pushback, e.Wait = race.PushbackAfter, wait
	}
	return e
}

// tellFailures tells the observers of the attempts that have failed while the race went on and its caller waited, and counts
// those whose servers pushed back, each once. Cancellation and expired deadlines do not count as failures.
func (c *Call) tellFailures(r *race.Report) {
	for n := range r.Hedges + 1 {
		a := &r.Attempts[n]
		failed := a.HasEnded && !a.CutShort && (a.End == race.Final || a.End == race.NonFatal || a.End == race.PoorStatus)
		if !failed || c.failures&(1<<n) != 0 || r.CallerGone != race.CallerStayed && a.EndedAt >= r.GoneAt {
			continue
		}
		c.failures |= 1 << n
		c.tellFailure(a.End, a.Pushback)
		if a.Pushback != race.NoPushback {
			c.tellHeldBack(r.Hedges+1, stats.PushedBack)
		}
	}
}

// tellFailure tells the observers of one failure.
func (c *Call) tellFailure(end race.End, p race.Pushback) {
	for _, o := range c.settings.Observers {
		o.Failed(end, p)
	}
	if p != race.NoPushback {
		c.method.Counters.Update(func(s *stats.Counts) { s.PushedBack++ })
	}
}

// final returns the statuses by which a server says that it looked at the request and answered.
func (c *Call) final() codeset.Set {
	if c.settings.Policy != nil {
		return c.settings.Policy.Final
	}
	return c.settings.Final
}

// hedgeFinal reports whether a hedge's final status may end the race.
func (c *Call) hedgeFinal() bool { return c.settings.Policy != nil || c.settings.OnlyReads }

// judge is what the answers of the call are judged by.
func (c *Call) judge() answer.Judge {
	return answer.Judge{Function: c.settings.Answer, Final: c.final(), HedgeFinal: c.hedgeFinal()}
}

// Accepts reports whether the user's function accepts how attempt n ended: see [answer.Judge].
func (c *Call) Accepts(n int, reply any, err error) bool {
	return c.judge().Accepts(c.Context, c.Call.Method, n, reply, err)
}

// AcceptsNone is Accepts of a stream that has ended without a message.
func (c *Call) AcceptsNone() bool { return c.judge().AcceptsNone(c.Context, c.Call.Method) }

// TracksFailures reports whether the trailers of failures must be reported: the target has a throttle, or the method a
// hedgingPolicy, by which a failure sends the next hedge.
func (c *Call) TracksFailures() bool {
	return c.settings != nil && (c.settings.Policy != nil || c.settings.Features.Throttle != nil)
}
