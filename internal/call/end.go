package call

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// End describes how a call ended for its caller. A stream ends with its first message, or without
// one.
type End struct {
	// Race is the report of the call's race; nil if its primary ended before a hedge was due, or if
	// it did not race.
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

	// Call.End sets the rest.

	gone    bool // the caller had gone
	known   bool // the latency is known: the caller waited from the start, and no attempt panicked
	primary primary
}

// primary describes how the primary of a call ended. Age is the call's.
type primary struct {
	known     bool // the primary has ended, and its end is known
	cutShort  bool // the primary had not answered at age, when a hedge won; a stream answers with its first message
	err       error
	age       time.Duration
	gone      bool // the caller had gone by then
	askedLate bool // the primary of a stream may have ended long before the caller asked
}

func (p *primary) answered() bool {
	return p.known && (p.err == nil || !p.gone && !p.askedLate && rpc.Answers.HasStatus(p.err))
}

// Grace is the time within which a caller that asks late for an answer counts as waiting: from the
// headers to the first message, and, if a hedge was due before the caller asked, until that hedge.
// The answer may have arrived already.
const Grace = time.Millisecond

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

// End counts the end of the call, and learns from it. It must be called once, after Raced if the
// call has raced.
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
	e.gone = e.Err != nil && c.Context != nil && c.Context.Err() != nil
	if e.Race != nil && !e.Headers {
		e.gone = e.Race.CallerGone
	}
	e.known = e.gone || e.Age >= 2*e.AskedAt
	switch {
	case e.Race == nil:
		e.primary = primary{known: true, err: e.Err, age: e.Age, gone: e.gone, askedLate: !e.known}
		c.unraced(&e)
	case e.Race.Panicked: // latencies are unknown
		e.known = false
	default:
		e.primary = primaryOf(c, &e)
		e.gone = e.gone || e.primary.gone
	}
	if answered := e.primary.answered(); answered || e.primary.known && !e.gone ||
		e.gone && c.Context.Err() == context.DeadlineExceeded {
		c.Record.Ended(e.primary.age, answered)
	}
	c.learn(&e)
	if t := c.settings.Throttle; t != nil && e.Err == nil && (e.Race == nil || !e.Race.Panicked) {
		t.Succeeded()
	}
	if c.settings.Guard && (e.Race != nil || e.Err != nil) {
		c.guardEnd(&e)
	}
	if answered := rpc.Answers.HasStatus(e.Err); c.Learns && e.known && (answered || e.gone) {
		c.settings.Groups.Ended(c.group, c.Start.Add(e.Age), e.Age, answered)
	}
}

// guardEnd reports RESOURCE_EXHAUSTED to the guard, except of hedges that the server turned away
// with a pushback.
func (c *Call) guardEnd(e *End) {
	primary, hedge := status.Code(e.Err) == codes.ResourceExhausted, false
	if r := e.Race; r != nil {
		primary = isExhausted(r.Attempts[0])
		hedge = slices.ContainsFunc(r.Attempts[1:r.Hedges+1], func(a race.AttemptReport) bool {
			return a.Pushback == race.NoPushback && isExhausted(a)
		})
	}
	if primary || hedge {
		c.method.Guard.Exhausted(time.Now(), c.method.Traffic(), !primary)
	}
}

func isExhausted(a race.AttemptReport) bool {
	return a.HasEnded && !a.CutShort && status.Code(a.Err) == codes.ResourceExhausted
}

// unraced counts the end of a primary without a hedge: the failure, and in a dry run the hedge that
// the call would have had.
func (c *Call) unraced(e *End) {
	if e.Err != nil && !e.gone && c.TracksFailures() {
		failure := c.Failure(e.Err, e.Trailer)
		c.failed(failure.End, failure.Pushback)
	}
	if !c.dry || !e.known || e.Age <= c.Delay {
		return
	}
	if why := c.prevented(); why != stats.NoReason {
		c.method.Counters.HeldBack(why)
		c.method.NoteUnhedgeable()
		return
	}
	c.method.Counters.Update(func(s *stats.Counts) { // the first hedge only: it might have answered before the second
		switch {
		case !c.draw(1):
			s.NotDrawn++
		case !c.settings.Unbudgeted() && !c.payment.Pretend(c.Start.Add(c.Delay)):
			s.BudgetExhausted++
		default:
			s.DryRun++
		}
	})
}

// prevented returns why a late call of a dry run could not have been hedged, or NoReason.
func (c *Call) prevented() stats.Reason {
	cc, _ := c.Conn.(*grpc.ClientConn)
	switch {
	case rpc.ForHedge(c.Context):
		return stats.OfHedge
	case c.settings.Policy == nil && c.deadlineNear(c.Start.Add(c.Delay)):
		return stats.DeadlineNear
	case cc != nil && c.settings.OtherBackendOnly && place.Count(cc.Target()).Ready < 2:
		return stats.NoOtherBackend
	}
	return stats.NoReason
}

// primaryOf describes the end of the primary of a race.
func primaryOf(c *Call, e *End) primary {
	r, a := e.Race, &e.Race.Attempts[0]
	if at, cut := r.Unanswered(0); cut {
		return primary{cutShort: true, age: at}
	}
	p := primary{known: a.HasEnded, err: a.Err, age: a.EndedAt, gone: goneBefore(c, r, 0)}
	switch {
	case e.Headers && r.Winner == 0:
		p.err, p.age, p.gone = e.Err, e.Age, e.gone
	case e.Headers && a.Err == nil: // its first message was still to come
		return primary{cutShort: true, age: r.DecidedAt}
	}
	p.askedLate = !p.gone && p.age < 2*e.AskedAt
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
		c.payment.Hedged(r.Winner > 0 && good)
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
