package call

import (
	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/settings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/stats"
)

// End is how a call ended for its caller. Of a stream it is how the first message came, or how the stream ended without one.
type End struct {
	// Race is the report of the call's race; nil if its primary ended before a hedge was due, or if it did not race. With a
	// report, Err, Age and Trailer are not used.
	Race *race.Report

	Err     error
	Age     time.Duration // of the call, when it ended; 0: now
	Trailer metadata.MD   // of a call that failed; nil if it is not known

	// AskedAt is the age at which the caller of a stream began to wait. If it is more than half of the age at which an attempt
	// ended, the attempt may have ended long before, and nothing is known of its latency.
	AskedAt time.Duration
	// Early says that headers decided the stream well before its first message: see stats.Counts.EarlyHeaders.
	Early bool
	// Headers says that the report is of a race for response headers, so that its times are not those of first messages. Unless
	// the stream has ended with it, which Over says, FirstMessage follows.
	Headers, Over bool
}

// End books how the call ended. It is called once.
func (c *Call) End(e End) {
	if c.method == nil {
		return
	}
	c.early(e)
	if e.Race == nil {
		c.endUnraced(e, false)
		return
	}
	defer c.tell(e.Race)
	c.endRace(e)
}

// Book implements [race.Policy] for a call of which the race is all that is to be known.
func (c *Call) Book(r *race.Report) { c.End(End{Race: r}) }

// FirstMessage books how the first message came of a stream whose race the headers of the hedge have decided, or those of the
// primary if hedge is nil. Of e, Race, Headers and Over are not used.
func (c *Call) FirstMessage(e End, hedge *race.AttemptReport) {
	c.early(e)
	if hedge == nil {
		c.endUnraced(e, true)
		return
	}
	age := c.Age()
	waited := age >= 2*e.AskedAt
	c.tellEnd(feature.End{Err: e.Err, Age: age, Known: waited, FirstMessage: true})
	switch headers := hedge.EndedAt - hedge.SentAt; {
	case e.Over:
		c.hedgeEnded(e.Err, headers)
	case waited:
		c.hedgeEnded(e.Err, age-hedge.SentAt)
	default:
		c.hedgeCutShort(headers)
	}
}

// early counts a stream that was decided by headers well before its first message, if that is so.
func (c *Call) early(e End) {
	if e.Early {
		c.dry = false // no hedge could have been sent
		c.method.Counters.EarlyHeaders()
	}
}

// endUnraced books a primary that no hedge raced against.
func (c *Call) endUnraced(e End, firstMessage bool) {
	if e.Age == 0 {
		e.Age = c.Age()
	}
	gone := false
	if e.Err != nil {
		if gone = c.Context != nil && c.Context.Err() != nil; !gone && c.TracksFailures() {
			failure := c.failureOf(e.Err, e.Trailer)
			c.tellFailure(failure.End, failure.Pushback)
		}
	}
	c.tellEnd(feature.End{
		Err: e.Err, Age: e.Age, Known: gone || e.Age >= 2*e.AskedAt, Gone: gone, FirstMessage: firstMessage, Success: c.succeeds(e.Err == nil),
	})
	c.primaryEnded(e, e.Err, e.Age, gone)
}

// endRace books what a race means for the statistics, the features, the judgement of the trigger, and what is learned.
func (c *Call) endRace(e End) {
	r := e.Race
	c.tellFailures(r)
	c.giveBack(r)
	p := &r.Attempts[0]
	gone := p.HasEnded && r.CallerGone != race.CallerStayed && r.GoneAt <= p.EndedAt
	known := p.HasEnded && (!e.Headers || e.Over || gone) // what became of the primary
	end := feature.End{Race: r, Err: r.Err, Age: r.DeliveredAt, Gone: r.CallerGone != race.CallerStayed}
	if r.Hedges > 0 {
		end.Known = !e.Headers && r.DeliveredAt >= 2*e.AskedAt && !r.Panicked
	} else if end.Known = known && (gone || p.EndedAt >= 2*e.AskedAt) && !r.Panicked; end.Known {
		end.Age, end.Gone = p.EndedAt, gone
	}
	end.Success = !r.Panicked && c.succeeds(r.Hedges > 0 && r.Err == nil || known && p.Err == nil)
	c.tellEnd(end)
	if r.NotReplayable {
		c.NotReplayable()
	}
	c.count(r)
	if r.Panicked {
		return // nobody has learned anything
	}
	if r.Hedges > 0 {
		c.won(r)
	}
	if e.Headers {
		c.endHedgesOfHeaders(r)
	} else {
		c.endHedges(r)
	}
	if at, cut := r.Unanswered(0); cut {
		c.cutShortAt(at)
	} else if known {
		c.primaryEnded(e, p.Err, p.EndedAt, gone)
	}
}

// succeeds reports whether a success is to be told, once.
func (c *Call) succeeds(success bool) bool {
	first := success && !c.credited
	c.credited = c.credited || success
	return first
}

func (c *Call) tellEnd(e feature.End) {
	for _, o := range c.settings.Observers {
		o.Ended(c.Call, e)
	}
}

// count counts what happened in a race, but for who won.
func (c *Call) count(r *race.Report) {
	poor := r.PoorAnswers()
	if poor == 0 && r.Dropped == 0 && r.LoserPanics == 0 && !r.Repeated {
		return
	}
	c.method.Counters.Update(func(s *stats.Counts) {
		s.Hedges -= int64(r.Dropped)
		if r.Hedges == 0 && r.Dropped > 0 {
			s.Hedged--
		}
		s.LoserPanics += int64(r.LoserPanics)
		s.PoorAnswers += int64(poor)
		if r.Repeated {
			s.Repeated++
		}
	})
}

// won books by which attempt a hedged call ended. Only an answer counts as a win.
func (c *Call) won(r *race.Report) {
	answered := codeset.Answers.HasStatus(r.Err)
	good := answered && !r.Attempts[r.Winner].End.IsPoor()
	if good || r.CallerGone != race.CallerCancelled { // of a call that was given up nobody knows whether its hedges were of use
		c.Payment.Hedged(r.Winner > 0 && good)
	}
	if proves(r) && c.Estimate != nil && c.Learns {
		c.learners(func(l *learn.Learner) { l.Hedged(r.Winner > 0 && answered) })
	}
	if !answered {
		return
	}
	c.method.Counters.Update(func(s *stats.Counts) {
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
	return r.PoorAnswers() == 0 && !r.Repeated && (codeset.Answers.HasStatus(r.Err) || r.CallerGone != race.CallerCancelled)
}

// endHedges books what a hedged call took, and what its hedges took, also those that were cut short. A hedge that failed
// teaches nothing. After a poor answer, or a cut, no hedge of the call does: the trigger learns from hedges of slow calls alone.
func (c *Call) endHedges(r *race.Report) {
	if r.Hedges > 0 {
		if c.Estimate != nil && c.Learns && proves(r) {
			first := r.Attempts[1].SentAt
			c.learners(func(l *learn.Learner) { l.HedgedCall(first, r.DeliveredAt-first, c.MaxHedges) })
		}
	}
	if r.PoorAnswers() > 0 || r.Repeated {
		return
	}
	for n := 1; n <= r.Hedges; n++ {
		a := &r.Attempts[n]
		if after, cut := r.Unanswered(n); cut {
			c.hedgeCutShort(after)
		} else if n == r.Winner && a.End != race.NonFatal || a.CutShort {
			c.hedgeEnded(a.Err, a.EndedAt-a.SentAt)
		}
	}
}

// endHedgesOfHeaders books the hedges of a race for headers as cut short. Of one that has won, FirstMessage tells more.
func (c *Call) endHedgesOfHeaders(r *race.Report) {
	for n := 1; n <= r.Hedges; n++ {
		if a := &r.Attempts[n]; a.CutShort && n != r.Winner {
			c.hedgeCutShort(r.DecidedAt - a.SentAt)
		}
	}
}

// hedgeEnded says how long after it was sent a hedge ended, which is a latency if it answered.
func (c *Call) hedgeEnded(err error, after time.Duration) {
	if c.learnsHedges() && codeset.Answers.HasStatus(err) {
		c.learners(func(l *learn.Learner) { l.HedgeAnswered(time.Now(), after) })
	}
}

// hedgeCutShort says how long after it was sent a hedge had not answered, when it was cancelled.
func (c *Call) hedgeCutShort(after time.Duration) {
	if c.learnsHedges() {
		c.learners(func(l *learn.Learner) { l.HedgeCancelled(time.Now(), after) })
	}
}

func (c *Call) learnsHedges() bool {
	return c.Learns && c.settings.Trigger.Kind == settings.AutoTrigger
}

// primaryEnded books a primary that ended with err at the given age of the call; gone says that its caller had gone. An answer
// teaches its latency, a call that was given up or whose deadline passed teaches that it would have taken longer, and any other
// failure nothing.
func (c *Call) primaryEnded(e End, err error, age time.Duration, gone bool) {
	answered := err == nil || !gone && codeset.Answers.HasStatus(err)
	if !gone && age < 2*e.AskedAt { // it may have ended long before
		if err == nil {
			c.Record.Answered(c.Start)
		}
		return
	}
	if c.dry {
		c.pretend(age)
	}
	if answered {
		c.Record.Answered(c.Start)
	}
	switch {
	case !c.Learns:
	case answered:
		c.learners(func(l *learn.Learner) { l.Observe(c.Start.Add(age), age) })
	case gone:
		c.cutShortAt(age)
	}
}

// cutShortAt says that the primary had not answered at the given age of the call.
func (c *Call) cutShortAt(age time.Duration) {
	if c.Learns {
		c.learners(func(l *learn.Learner) { l.ObserveLonger(c.Start.Add(age), age) })
	}
}

// LoserPanicked says that an attempt panicked after the call was decided. It may be called at any time, from
// any goroutine.
func (c *Call) LoserPanicked() {
	if c.method != nil {
		c.method.Counters.Update(func(s *stats.Counts) { s.LoserPanics++ })
	}
}

// learners does something with each learner that the call teaches: the method's and its class's.
func (c *Call) learners(teach func(*learn.Learner)) {
	teach(c.Learned.Method)
	if c.Learned.Class != nil {
		teach(c.Learned.Class)
	}
}

// pretend counts the hedge that a call of that age would have had, at its end instead of when it was due. Whether there
// would have been a second one nobody knows: the first might have answered.
func (c *Call) pretend(age time.Duration) {
	due := c.Start.Add(c.Delay)
	c.dry = false
	c.method.Counters.Update(func(s *stats.Counts) {
		switch {
		case age <= c.Delay:
		case !c.Draw(1, due):
			s.NotDrawn++
		case !c.settings.Unbudgeted() && !c.Payment.Pay(due, true):
			s.BudgetExhausted++
		default:
			s.DryRun++
		}
	})
}
