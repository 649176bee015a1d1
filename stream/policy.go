package stream

import "github.com/grpchedge/hedge/internal/race"

// policy implements [race.Policy] for a clientStream. Most of it is the engine's.
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

func (p *policy) Book(r *race.Report) { (*clientStream)(p).endRaced(r) }
