package call

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// End describes how a call ended for its caller. A stream ends with its first message, or without
// one.
type End struct {
	// Race is the report of the call's race; nil if its primary ended before a hedge was due, or if it did not race.
	Race *race.Report
	// Headers is set if the race was for response headers. Err and Age then describe the first
	// message, or the end of the stream.
	Headers bool

	Err     error
	Age     time.Duration // of the call, when it ended; 0: now
	Trailer metadata.MD   // of a call that failed without a race; nil if unknown

	// AskedAt is the age at which the caller of a stream began to wait. If AskedAt is more than
	// half of the age at which an attempt ended, the latency of the attempt is unknown, because the
	// attempt may have ended long before.
	AskedAt time.Duration
	// Early is set if headers decided the stream well before its first message: see
	// stats.Counts.EarlyHeaders.
	Early bool
}

// Book implements [race.Policy] for a call that ends when its race is decided.
func (c *Call) Book(r *race.Report) {
	c.Raced(r)
	c.End(End{Race: r, Err: r.Err, Age: r.DeliveredAt})
}

// Raced counts and reports what happened in the call's race. The caller must call End afterwards,
// or when the first message has come.
func (c *Call) Raced(r *race.Report) {
	c.catchUp(r)
	c.Record.Unreserve(true) // not in End: nobody may call RecvMsg after Header
	if r.NotReplayable {
		c.NotReplayable()
	}
	count(c, r)
	c.tell(r)
}

// End passes the end of the call to the observers. It must be called once, after Raced if the call
// has raced.
func (c *Call) End(e End) {
	if c.method == nil {
		return
	}
	if e.Age == 0 {
		e.Age = c.Age()
	}
	if e.Early {
		c.dry = false // a stream that headers have decided has no hedge
		c.method.Counters.Update(func(s *stats.Counts) { s.EarlyHeaders++ })
		c.method.NoteUnhedgeable()
	}
	gone := e.Err != nil && c.Context != nil && c.Context.Err() != nil
	if e.Race != nil && !e.Headers {
		gone = e.Race.CallerGone
	}
	end := &c.end
	*end = feature.End{Race: e.Race, Headers: e.Headers, Err: e.Err, Age: e.Age, Gone: gone, Known: gone || e.Age >= 2*e.AskedAt}
	switch {
	case e.Race == nil:
		end.Primary = feature.Primary{Known: true, Err: e.Err, Age: e.Age, Gone: gone, AskedLate: !end.Known}
		c.unraced(&e)
	case e.Race.Panicked: // latencies are unknown
		end.Known = false
	default:
		end.Primary = primaryOf(c, &e)
		end.Gone = gone || end.Primary.Gone
	}
	if answered := end.Primary.Answered(); answered || end.Primary.Known && !end.Gone || end.Gone && c.Context.Err() == context.DeadlineExceeded {
		c.Record.Ended(end.Primary.Age, answered)
	}
	for _, o := range c.settings.Observers {
		o.Ended(&c.CallState, end)
	}
}

// unraced counts the end of a primary without a hedge: the failure, and in a dry run the hedge that
// the call would have had.
func (c *Call) unraced(e *End) {
	if e.Err != nil && !c.end.Gone && c.TracksFailures() {
		failure := c.Failure(e.Err, e.Trailer)
		tellFailure(c, failure.End, failure.Pushback)
	}
	if !c.dry || !c.end.Known {
		return
	}
	if e.Age <= c.Delay {
		return
	}
	if why := c.prevented(); why != stats.NoReason {
		c.method.Counters.HeldBack(why)
		c.method.NoteUnhedgeable()
		return
	}
	c.method.Counters.Update(func(s *stats.Counts) { // the first hedge only: it might have answered before the second
		switch {
		case !c.Draw(1):
			s.NotDrawn++
		case !c.settings.Unbudgeted() && !c.Payment.Pretend(c.Start.Add(c.Delay)):
			s.BudgetExhausted++
		default:
			s.DryRun++
		}
	})
}

// prevented returns why a late call of a dry run could not have been hedged, or NoReason.
func (c *Call) prevented() stats.Reason {
	deadline, ok := c.Context.Deadline()
	cc, _ := c.Conn.(*grpc.ClientConn)
	switch {
	case rpc.ForHedge(c.Context):
		return stats.OfHedge
	case ok && c.settings.Policy == nil && deadline.Sub(c.Start.Add(c.Delay)) <= c.Median():
		return stats.DeadlineNear
	case cc != nil && c.settings.OtherBackendOnly && place.Count(cc.Target()).Ready < 2:
		return stats.NoOtherBackend
	}
	return stats.NoReason
}

// primaryOf describes the end of the primary of a race.
func primaryOf(c *Call, e *End) feature.Primary {
	r, a := e.Race, &e.Race.Attempts[0]
	if at, cut := r.Unanswered(0); cut {
		return feature.Primary{CutShort: true, Age: at}
	}
	p := feature.Primary{Known: a.HasEnded, Err: a.Err, Age: a.EndedAt, Gone: goneBefore(c, r, 0)}
	switch {
	case e.Headers && r.Winner == 0:
		p.Err, p.Age, p.Gone = e.Err, e.Age, c.end.Gone
	case e.Headers && a.Err == nil: // its first message was still to come
		return feature.Primary{CutShort: true, Age: r.DecidedAt}
	}
	p.AskedLate = !p.Gone && p.Age < 2*e.AskedAt
	return p
}

// goneBefore reports whether the caller's context had ended when attempt n ended. A primary that
// headers have committed ends after the report was made, so goneBefore looks at the context.
func goneBefore(c *Call, r *race.Report, n int) bool {
	a := &r.Attempts[n]
	if r.Committed && n == 0 {
		return a.Err != nil && c.Context.Err() != nil
	}
	return r.CallerGone && r.GoneAt <= a.EndedAt
}

// count counts what happened in a race, and which attempt won. Only an answer counts as a win. A
// call whose hedges were all turned away counts for neither.
func count(c *Call, r *race.Report) {
	rejected, hedged := r.Rejected(), r.Served() > 0 && !r.Panicked
	answered := hedged && rpc.Answers.HasStatus(r.Err)
	good := answered && !r.Attempts[r.Winner].End.IsRejected()
	if hedged && (good || !r.GaveUp) { // if the caller gave up, the value of hedges is unknown
		c.Payment.Hedged(r.Winner > 0 && good)
	}
	if !answered && rejected == 0 && r.Dropped == 0 && r.LoserPanics == 0 && !r.Repeated {
		return
	}
	c.method.Counters.Update(func(s *stats.Counts) {
		s.Hedges -= int64(r.Dropped)
		if r.Hedges == 0 && r.Dropped > 0 {
			s.Hedged--
		}
		s.LoserPanics += int64(r.LoserPanics)
		s.Rejected += int64(rejected)
		if r.Repeated {
			s.Repeated++
		}
		switch {
		case !answered:
		case r.Winner == 0:
			s.PrimaryWins++
		default:
			s.HedgeWins++
		}
	})
}

// LoserPanicked counts an attempt that panicked after the call was decided. It may be called at any
// time, from any goroutine.
func (c *Call) LoserPanicked() {
	if c.method != nil {
		c.method.Counters.Update(func(s *stats.Counts) { s.LoserPanics++ })
	}
}
