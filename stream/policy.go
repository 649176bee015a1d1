package stream

import (
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/race"
)

// policy is a clientStream's call as its race sees it: the scheduler's, but for what only a stream knows.
type policy clientStream

func (p *policy) Admit(n, turn int, so *race.Report) race.Event {
	p.settleEnds(so)
	return p.call.Admit(n, turn, so)
}

func (p *policy) LoserPanicked() { p.call.LoserPanicked() }

func (p *policy) Failure(n int, err error, trailer metadata.MD) race.Event {
	if none, ok := err.(noHeaders); ok {
		e := race.Event{}
		if none.err != nil {
			e = p.call.Failure(n, none.err, trailer)
		}
		e.End = race.NonFatal
		return e
	}
	return p.call.Failure(n, err, trailer)
}

// Book books the report. In a race for headers no hedge has delivered a message, so that its time is a lower bound.
func (p *policy) Book(r *race.Report) {
	p.settleEnds(r)
	p.call.BookRace(r)
	if r.Panicked {
		return
	}
	if at, cut := r.Unanswered(0); cut {
		p.call.CutShortAt(at)
	} else if primary := &r.Attempts[0]; primary.HasEnded {
		p.learn(primary.Err, primary.EndedAt)
	}
	if p.line == message {
		p.call.BookHedges(r)
		return
	}
	for n := 1; n <= r.Hedges; n++ {
		if a := &r.Attempts[n]; a.CutShort || n == r.Winner && a.End == race.OK {
			p.call.HedgeCutShort(r.DecidedAt - a.SentAt)
		}
	}
}

// learn learns the time to the first message, and only from a reader that was waiting for it. A reader that came late finds
// the message there, and how long ago it came nobody knows. A reader counts as waiting if it has waited for at least half of
// the stream's age. The primary ended with err at the given age.
func (p *policy) learn(err error, age time.Duration) {
	gone := err != nil && p.caller.Err() != nil
	waited := p.line == message && age >= 2*p.asked
	switch {
	case p.learned: // a deadline that passed after the headers is seen twice
	case gone || waited:
		p.learned = true
		p.call.EndedAt(err, age, gone)
	case err == nil && p.line == message: // headers are no success yet
		p.call.Succeeded()
	}
}

// settleEnds replaces the errors of attempts that ended without headers by how they ended, which may have been well.
func (p *policy) settleEnds(r *race.Report) {
	for n := range r.Attempts {
		a := &r.Attempts[n]
		none, ok := a.Err.(noHeaders)
		if !ok {
			continue
		}
		if a.Err, a.End = none.err, race.Final; none.err != nil {
			a.End = p.call.Failure(n, none.err, nil).End
		}
	}
}
