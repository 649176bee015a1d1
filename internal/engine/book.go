package engine

import (
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/learn"
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
	if c.final().has(err) {
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

// Book books the race of the call, from its report: everything but why hedges were not admitted.
func (c *Call) Book(r *race.Report) {
	defer c.Tell(r)
	c.BookRace(r)
	if r.Panicked {
		return // nobody has learned anything
	}
	c.BookHedges(r)
	if at, cut := r.Unanswered(0); cut {
		c.CutShortAt(at)
	} else if p := &r.Attempts[0]; p.HasEnded {
		c.EndedAt(p.Err, p.EndedAt, r.CallerGone != race.CallerStayed && r.GoneAt <= p.EndedAt)
	}
}

// BookRace books what a race means for the statistics, the throttle and the judgement of the trigger. It books no latency.
func (c *Call) BookRace(r *race.Report) {
	c.bookFailures(r)
	c.refund(r)
	c.raceFailed(r)
	if r.NotReplayable {
		c.NotReplayable()
	}
	if poor := r.PoorAnswers(); poor > 0 || r.Dropped > 0 || r.LoserPanics > 0 {
		c.method.counters.update(func(s *stats.Counts) {
			s.Hedges -= int64(r.Dropped)
			if r.Hedges == 0 && r.Dropped > 0 {
				s.Hedged--
			}
			s.LoserPanics += int64(r.LoserPanics)
			s.PoorAnswers += int64(poor)
		})
	}
	if r.Repeated {
		c.method.counters.update(func(s *stats.Counts) { s.Repeated++ })
	}
	if r.Hedges > 0 && !r.Panicked {
		c.won(r)
	}
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

// won books by which attempt a hedged call ended. Only an answer counts as a win.
func (c *Call) won(r *race.Report) {
	answered := answers.has(r.Err)
	good := answered && !r.Attempts[r.Winner].End.IsPoor()
	if good || r.CallerGone != race.CallerCancelled { // of a call that was given up nobody knows whether its hedges were of use
		c.payment.hedged(r.Winner > 0 && good)
	}
	if proves(r) && c.estimate != nil && c.Learns() {
		c.learners(func(l *learn.Learner) { l.Hedged(r.Winner > 0 && answered) })
	}
	if !answered {
		return
	}
	if r.Err == nil {
		c.Succeeded()
	}
	c.method.counters.update(func(s *stats.Counts) {
		if r.Winner == 0 {
			s.PrimaryWins++
		} else {
			s.HedgeWins++
		}
	})
}

// proves reports whether a race shows if hedges of slow calls pay. One whose caller gave up does not. One whose deadline no
// attempt met does. One with a poor answer does not, because its hedges had another reason.
func proves(r *race.Report) bool {
	return r.PoorAnswers() == 0 && !r.Repeated && (answers.has(r.Err) || r.CallerGone != race.CallerCancelled)
}

// BookHedges books what a hedged call took, and what its hedges took, also those that were cut short. A hedge that failed
// teaches nothing. After a poor answer, or a cut, no hedge of the call does: the trigger learns from hedges of slow calls alone.
func (c *Call) BookHedges(r *race.Report) {
	if r.Hedges > 0 {
		c.compare(r.Err, r.DeliveredAt, r.CallerGone != race.CallerStayed)
		if c.estimate != nil && c.Learns() && proves(r) {
			first := r.Attempts[1].SentAt
			c.learners(func(l *learn.Learner) { l.HedgedCall(first, r.DeliveredAt-first, c.maxHedges()) })
		}
	}
	if r.PoorAnswers() > 0 || r.Repeated {
		return
	}
	for n := 1; n <= r.Hedges; n++ {
		a := &r.Attempts[n]
		if after, cut := r.Unanswered(n); cut {
			c.HedgeCutShort(after)
		} else if n == r.Winner && a.End != race.NonFatal || a.CutShort {
			c.HedgeEnded(a.Err, a.EndedAt-a.SentAt)
		}
	}
}

// HedgeEnded says how long after it was sent a hedge ended, which is a latency if it answered.
func (c *Call) HedgeEnded(err error, after time.Duration) {
	if c.learnsHedges() && answers.has(err) {
		c.learners(func(l *learn.Learner) { l.HedgeAnswered(time.Now(), after) })
	}
}

// HedgeCutShort says how long after it was sent a hedge had not answered, when it was cancelled.
func (c *Call) HedgeCutShort(after time.Duration) {
	if c.learnsHedges() {
		c.learners(func(l *learn.Learner) { l.HedgeCancelled(time.Now(), after) })
	}
}

func (c *Call) learnsHedges() bool {
	return c.Learns() && c.settings.Trigger.Kind == AutoTrigger
}

// Unraced books the end of a call that was made without a race, or whose race was untouched. The trailer is that of one
// that failed; nil if it is not known.
func (c *Call) Unraced(err error, trailer metadata.MD) {
	if err != nil {
		c.Failed(err, trailer)
	}
	c.Ended(err)
}

// Failed books a failure with err, unless the caller gave up or the deadline passed.
func (c *Call) Failed(err error, trailer metadata.MD) {
	if c.tracksFailures && c.ctx.Err() == nil {
		e := c.failureOf(err, trailer)
		c.failed(e.End, e.Pushback)
	}
}

// Ended says that the primary has just ended with err. An answer teaches its latency, a call that its caller
// gave up or whose deadline passed teaches that it would have taken longer, and any other failure nothing.
func (c *Call) Ended(err error) {
	if err != nil {
		c.Failing(err)
	}
	c.EndedAt(err, c.Age(), err != nil && c.ctx != nil && c.ctx.Err() != nil)
}

// EndedAt says the same of a primary that ended at the given age of the call; gone says that the caller's context had ended.
func (c *Call) EndedAt(err error, age time.Duration, gone bool) {
	if c.dry {
		c.pretend(age)
	}
	if err == nil {
		c.Succeeded()
	}
	if err == nil || !gone && answers.has(err) {
		c.PrimaryAnswered()
	}
	c.compare(err, age, gone)
	switch {
	case !c.Learns():
	case err == nil, !gone && answers.has(err):
		c.learners(func(l *learn.Learner) { l.Observe(c.start.Add(age), age) })
	case gone:
		c.CutShortAt(age)
	}
}

// CutShortAt says that the primary had not answered at the given age of the call, when a hedge won.
func (c *Call) CutShortAt(age time.Duration) {
	if c.Learns() {
		c.learners(func(l *learn.Learner) { l.ObserveLonger(c.start.Add(age), age) })
	}
}

// LoserPanicked says that an attempt panicked after the call was decided. It may be called at any time, from
// any goroutine.
func (c *Call) LoserPanicked() {
	if c.method != nil {
		c.method.counters.update(func(s *stats.Counts) { s.LoserPanics++ })
	}
}
