package engine

import (
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/wire"
	"github.com/grpchedge/hedge/stats"
)

// Failure says how an attempt of the call ended with err: whether the server looked at the request and answered, whether its
// connection was cut, and what the trailer says of further attempts.
func (c *Call) Failure(n int, err error, seen race.Seen) race.Event {
	e := c.failureOf(err, seen.Trailer)
	c.cut(&e, err, seen)
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

// bookFailures tells the throttle of the attempts that have failed while the race went on and its caller waited, and counts
// those whose servers pushed back, each once. Cancellation and expired deadlines do not count as failures.
func (c *Call) bookFailures(r *race.Report) {
	for n := range r.Hedges + 1 {
		a := &r.Attempts[n]
		failed := a.HasEnded && !a.CutShort && (a.End == race.Final || a.End == race.NonFatal || a.End == race.PoorStatus)
		if !failed || c.failures&(1<<n) != 0 || r.CallerGone != race.CallerStayed && a.EndedAt >= r.GoneAt {
			continue
		}
		c.failures |= 1 << n
		c.failed(a.End, a.Pushback)
		if a.Pushback != race.NoPushback {
			c.tellHeldBack(r.Hedges+1, stats.PushedBack)
		}
	}
}

// failed books one failure.
func (c *Call) failed(end race.End, p race.Pushback) {
	if t := c.settings.throttle; t != nil && (end == race.NonFatal || p == race.PushbackNever) {
		t.failure()
	}
	if p != race.NoPushback {
		c.method.counters.update(func(s *stats.Counts) { s.PushedBack++ })
	}
}
