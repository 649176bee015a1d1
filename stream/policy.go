package stream

import (
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

// policy implements [race.Policy] for a clientStream. Most of it is the engine's. Book is different, because a race for
// response headers does not measure the time to the first message.
type policy clientStream

func (p *policy) Admit(n, turn int, so *race.Report) race.Event { return p.call.Admit(n, turn, so) }

func (p *policy) Failure(n int, err error, seen race.Seen) race.Event {
	return p.call.Failure(n, err, seen)
}

func (p *policy) MayRepeat(err error) bool { return p.call.MayRepeat(err) }

func (p *policy) Sent(n int)                                   { p.call.Sent(n) }
func (p *policy) Lost(losers, may race.Attempts) race.Attempts { return p.call.Lost(losers, may) }

func (p *policy) LeftEnded() { p.call.LeftEnded() }

func (p *policy) LoserPanicked() { p.call.LoserPanicked() }

// Book books the report, and the latencies in it if they are times to the first message.
func (p *policy) Book(r *race.Report) {
	defer p.call.Tell(r)
	p.call.BookRace(r)
	if r.Panicked {
		return
	}
	if p.goal != firstMessage {
		p.bookHeaders(r)
	} else {
		if r.DeliveredAt < 2*p.askedAt {
			p.call.Incomparable()
		}
		p.call.BookHedges(r)
	}
	if at, cut := r.Unanswered(0); cut {
		p.call.CutShortAt(at)
	} else if primary := &r.Attempts[0]; primary.HasEnded {
		p.ended(primary.Err, primary.EndedAt)
	}
}

// bookHeaders books the hedges of a race for headers. The latency of a hedge that won is booked with its first message: see
// learnFirstMessage. The others are booked as cut short.
func (p *policy) bookHeaders(r *race.Report) {
	for n := 1; n <= r.Hedges; n++ {
		a := &r.Attempts[n]
		if n == r.Winner && a.End != race.NonFatal {
			p.headerWin = &headerWin{sent: a.SentAt, after: a.EndedAt - a.SentAt}
		} else if a.CutShort {
			p.call.HedgeCutShort(r.DecidedAt - a.SentAt)
		}
	}
}

// ended learns from a primary that reached the goal of the race with err, at the given age.
func (p *policy) ended(err error, age time.Duration) {
	known := p.goal == firstMessage || p.primary.answered()
	(*clientStream)(p).learn(err, age, known, age >= 2*p.askedAt)
}
