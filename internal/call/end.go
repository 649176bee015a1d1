package call

import (
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature"
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
	// Headers says that the race was for response headers, and Over that the stream has ended with them: see Call.End.
	Headers, Over bool
}

// End books how the call ended. It is called once. What observers are told by it, and by FirstMessage where that follows:
//
//	race for         won by   told by       Age, if it is Known          Primary
//	no race          –        End           the primary's end            Known
//	message, unary   primary  End           delivery                     Known
//	                 hedge    End           delivery                     CutShort, or Known if it had failed
//	headers          primary  End           not Known                    not Known
//	                          FirstMessage  the first message            Known
//	                 hedge    End           not Known                    CutShort, or not Known
//	                          FirstMessage  the first message            – (Hedge is the winner's report)
//	headers, Over    primary  End           the primary's end            Known
//
// Of a race without a hedge, the age is that of the primary's end. Nothing is Known where the caller asked late or an attempt
// panicked. If the caller has gone, the age is known at once.
func (c *Call) End(e End) {
	switch {
	case c.method == nil:
	case e.Race == nil:
		c.endUnraced(e, false)
	default:
		c.endRace(e)
		c.tell(e.Race)
	}
}

// Book implements [race.Policy] for a call of which the race is all that is to be known.
func (c *Call) Book(r *race.Report) { c.End(End{Race: r}) }

// FirstMessage books how the first message came of a stream whose race the headers of the hedge have decided, or those of the
// primary if hedge is nil. Of e, Age is needed, and Race and Headers are not used.
func (c *Call) FirstMessage(e End, hedge *race.AttemptReport) {
	if hedge == nil {
		c.endUnraced(e, true)
		return
	}
	countEarly(c, e)
	c.ended(feature.End{Err: e.Err, Age: e.Age, Known: e.Age >= 2*e.AskedAt, FirstMessage: true, Hedge: hedge, Over: e.Over})
}

// countEarly counts a stream that was decided by headers well before its first message, if that is so.
func countEarly(c *Call, e End) {
	if e.Early {
		c.dry = false // no hedge could have been sent
		c.method.Counters.EarlyHeaders()
	}
}

// endUnraced ends a call by a primary that no hedge raced against.
func (c *Call) endUnraced(e End, firstMessage bool) {
	countEarly(c, e)
	if e.Age == 0 {
		e.Age = c.Age()
	}
	gone := e.Err != nil && c.Context != nil && c.Context.Err() != nil
	if e.Err != nil && !gone && c.TracksFailures() {
		failure := failureOf(c.settings.Final, e.Err, e.Trailer)
		tellFailure(c, failure.End, failure.Pushback)
	}
	askedLate := !gone && e.Age < 2*e.AskedAt
	if c.dry && !askedLate {
		pretend(c, e.Age)
	}
	c.ended(feature.End{
		Err: e.Err, Age: e.Age, Known: !askedLate, Gone: gone, FirstMessage: firstMessage, Success: e.Err == nil,
		Primary: feature.Primary{Known: true, Err: e.Err, Age: e.Age, Gone: gone, AskedLate: askedLate},
	})
}

func (c *Call) endRace(e End) {
	r := e.Race
	c.catchUp(r)
	if r.NotReplayable {
		c.NotReplayable()
	}
	count(c, r)
	end := feature.End{Race: r, Err: r.Err, Age: r.DeliveredAt, Gone: r.CallerGone != race.CallerStayed, Headers: e.Headers}
	if !r.Panicked { // otherwise nobody has learned anything
		countEarly(c, e)
		p := primaryOf(c, e)
		if r.Hedges > 0 && (!e.Headers || end.Gone && r.Err != nil) {
			end.Known, end.Gone = r.DeliveredAt >= 2*e.AskedAt, end.Gone || p.Gone
		} else if end.Known = p.Known && !p.AskedLate && r.Winner == 0; end.Known {
			end.Age, end.Gone = p.Age, p.Gone
		}
		end.Success = r.Hedges > 0 && r.Err == nil || p.Known && p.Err == nil
		end.Primary = p
	}
	c.ended(end)
}

// primaryOf is what became of the primary of a race.
func primaryOf(c *Call, e End) (p feature.Primary) {
	r, a := e.Race, &e.Race.Attempts[0]
	if at, cut := r.Unanswered(0); cut {
		return feature.Primary{CutShort: true, Age: at}
	}
	p = feature.Primary{Err: a.Err, Age: a.EndedAt, Gone: goneBefore(c, r, 0)}
	p.Known = a.HasEnded && (!e.Headers || e.Over || p.Gone)
	p.AskedLate = !p.Gone && p.Age < 2*e.AskedAt
	return p
}

// goneBefore reports whether the caller had gone when attempt n ended. A primary that headers have committed ends after its race
// was decided, and the report does not say whether the caller has gone since.
func goneBefore(c *Call, r *race.Report, n int) bool {
	a := &r.Attempts[n]
	if r.Committed && n == 0 {
		return a.Err != nil && c.Context.Err() != nil
	}
	return r.CallerGone != race.CallerStayed && r.GoneAt <= a.EndedAt
}

// ended tells the observers. A success is told once.
func (c *Call) ended(e feature.End) {
	e.Success, c.credited = e.Success && !c.credited, c.credited || e.Success
	if e.Primary.Answered() {
		c.Record.Answered(c.Start)
	}
	told := c.settings.Observers
	if e.Race == nil && e.Err == nil {
		told = c.settings.Attentive
	}
	for _, o := range told {
		o.Ended(c.Call, e)
	}
}

// count counts what happened in a race, and which attempt won. Only an answer counts as a win.
func count(c *Call, r *race.Report) {
	poor, hedged := r.PoorAnswers(), r.Hedges > 0 && !r.Panicked
	answered := hedged && codeset.Answers.HasStatus(r.Err)
	good := answered && !r.Attempts[r.Winner].End.IsPoor()
	if hedged && (good || r.CallerGone != race.CallerCancelled) { // of a call that was given up nobody knows whether its hedges were of use
		c.Payment.Hedged(r.Winner > 0 && good)
	}
	if !answered && poor == 0 && r.Dropped == 0 && r.LoserPanics == 0 && !r.Repeated {
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
		switch {
		case !answered:
		case r.Winner == 0:
			s.PrimaryWins++
		default:
			s.HedgeWins++
		}
	})
}

// pretend counts the hedge that a call of that age would have had, at its end instead of when it was due. Whether there
// would have been a second one nobody knows: the first might have answered.
func pretend(c *Call, age time.Duration) {
	due := c.Start.Add(c.Delay)
	c.dry = false
	c.method.Counters.Update(func(s *stats.Counts) {
		switch {
		case age <= c.Delay:
		case !c.Draw(1, due):
			s.NotDrawn++
		case !c.settings.Unbudgeted() && !c.Payment.Pretend(due):
			s.BudgetExhausted++
		default:
			s.DryRun++
		}
	})
}

// LoserPanicked says that an attempt panicked after the call was decided. It may be called at any time, from any goroutine.
func (c *Call) LoserPanicked() {
	if c.method != nil {
		c.method.Counters.Update(func(s *stats.Counts) { s.LoserPanics++ })
	}
}
