package stream

import (
	"time"

	"google.golang.org/grpc/metadata"
)

// policy is a clientStream's call as its race sees it: the scheduler's, but for what only a stream knows.
type policy clientStream

// Ended learns from a race whose outcome is that of the first message.
func (p *policy) Ended(err error) {
	known := p.line == message || p.primary.answered()
	(*clientStream)(p).learn(err, known, p.call.Age() >= 2*p.asked)
}

// Hedged learns from first messages alone: what one that won by its headers teaches is known with that.
func (p *policy) Hedged(after time.Duration, won bool, err error) {
	if won && p.line == headers {
		p.pending = &pending{sent: p.call.Age() - after, after: after}
		return
	}
	p.call.Hedged(after, won, err)
}

func (p *policy) Final(n int, err error) bool { return p.call.Final(n, err) }

func (p *policy) Failed(err error, trailer metadata.MD) (due time.Duration, more bool) {
	return p.call.Failed(err, trailer)
}

func (p *policy) Heeds() bool      { return p.heeds }
func (p *policy) Successive() bool { return p.committed }

func (p *policy) NotReplayable()                               { p.call.NotReplayable() }
func (p *policy) Admit(n int) (send bool, again time.Duration) { return p.call.Admit(n) }
func (p *policy) Unsent(n int)                                 { p.call.Unsent(n) }

func (p *policy) Next() (time.Duration, bool) { return p.call.Next() }
func (p *policy) CutShort(at time.Time)       { p.call.CutShort(at) }
func (p *policy) Won(n int, err error)        { p.call.Won(n, err) }
func (p *policy) LoserPanicked()              { p.call.LoserPanicked() }
