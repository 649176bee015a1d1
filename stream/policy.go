package stream

import (
	"time"

	"google.golang.org/grpc/metadata"
)

// policy is a clientStream's call as its race sees it: the scheduler's, but for what only a stream knows.
type policy clientStream

// Ended learns the time to first message, and only from a reader that was waiting for it: one that came late finds
// the message there, and how long ago it came nobody knows. A reader counts as waiting if it has waited for at
// least half of the stream's age.
func (p *policy) Ended(err error) {
	gone := err != nil && p.caller.Err() != nil
	waited := p.line == message && p.call.Age() >= 2*p.asked
	switch {
	case p.learned: // a deadline that passed after the headers is seen twice
	case gone || waited:
		p.learned = true
		p.call.Ended(err)
	case err == nil && p.line == message: // headers are no success yet
		p.call.Succeeded()
	}
}

// Hedged learns from first messages alone: one that won by its headers had not delivered one yet.
func (p *policy) Hedged(after time.Duration, won bool, err error) {
	p.call.Hedged(after, won && p.line == message, err)
}

func (p *policy) Final(n int, err error) bool {
	_, none := err.(noHeaders)
	return !none && p.call.Final(n, err)
}

// Failed is told how an attempt ended that had no headers, which may have been well.
func (p *policy) Failed(err error, trailer metadata.MD) (due time.Duration, more bool) {
	if none, ok := err.(noHeaders); ok {
		if err = none.err; err == nil {
			return 0, false
		}
	}
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
