package call

import (
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/wire"
	"github.com/grpchedge/hedge/stats"
)

// Failure says how an attempt of the call ended with err: whether the server looked at the request and answered, whether its
// connection was cut, and what the trailer says of further attempts.
func (c *Call) Failure(n int, err error, seen race.Seen) race.Event {
	e := failureOf(c.settings.Final, err, seen.Trailer)
	if !c.OffWire {
		c.settings.Resets.Judge(&e, err, seen, c.Start, c.Conn)
	}
	return e
}

// failureOf is Failure without a look at the connection.
func failureOf(final codeset.Set, err error, trailer metadata.MD) race.Event {
	e := race.Event{End: race.NonFatal}
	if final.HasStatus(err) {
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

// catchUp books what has happened in the race since the last look. It tells the observers of the attempts that have failed while
// the caller waited, each once. It gives back what was taken for hedges that were dropped. As only one hedge is prepared at a
// time, that is at most the last one that was paid for. Cancellation and expired deadlines do not count as failures.
func (c *Call) catchUp(r *race.Report) {
	for n := range r.Hedges + 1 {
		a := &r.Attempts[n]
		if !a.Failed() || a.CutShort || c.failures&(1<<n) != 0 || c.goneBefore(r, n) {
			continue
		}
		c.failures |= 1 << n
		tellFailure(c, a.End, a.Pushback)
		if a.Pushback != race.NoPushback {
			tellHeldBack(c, r.Hedges+1, stats.PushedBack)
		}
	}
	for ; int(c.dropped) < r.Dropped; c.dropped++ {
		for _, g := range c.settings.Gates {
			if p, ok := g.(feature.Payer); ok {
				p.GiveBack(c.Call)
			}
		}
	}
}

// tellFailure tells the observers of one failure.
func tellFailure(c *Call, end race.End, p race.Pushback) {
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
