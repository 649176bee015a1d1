package stream

import (
	"time"

	"google.golang.org/grpc/metadata"
)

// waiting is a wait for the headers, by the age of the call.
type waiting struct {
	came      bool // there were headers
	asked, at time.Duration
}

// pending is a hedge that won by its headers.
type pending struct {
	sent  time.Duration // the call's age then
	after time.Duration // when the headers came, since then
}

// headersCame takes note of the headers that decided the call, if there are any, and that somebody asked for at that
// age.
func (c *clientStream) headersCame(asked time.Duration, header metadata.MD) {
	at := c.call.Age()
	c.mu.Lock()
	defer c.mu.Unlock()
	if header != nil && !c.headers.came {
		c.headers = waiting{came: true, asked: asked, at: at}
	}
}

func (c *clientStream) headersWaited() waiting {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers
}

// learn takes note of how the primary ended for its caller, at the given age: known says that err is the outcome of its
// first message, waited that somebody was waiting for that. A reader that came late finds the message there, and how long ago
// it came nobody knows.
func (c *clientStream) learn(err error, age time.Duration, known, waited bool) {
	gone := err != nil && c.caller.Err() != nil
	switch {
	case c.learned: // a deadline that passed after the headers is seen twice
	case gone || known && waited:
		c.learned = true
		c.call.EndedAt(err, age, gone)
	case known && err == nil:
		c.call.Succeeded()
	}
}

// note learns from the first message of m, or the end, that RecvMsg, called at the age asked, has just received after the
// stream was decided.
func (c *clientStream) note(m *member, asked time.Duration, err error) {
	failure := outcome(err)
	if c.early(asked) {
		c.call.EarlyHeaders()
	}
	waited := c.waited(asked)
	if m == &c.primary {
		if failure != nil && c.heeds && (!c.raced || m.ended == nil) { // a race has told what it saw
			c.call.Failed(failure, m.Trailer())
		}
		c.learn(failure, c.call.Age(), true, waited)
		return
	}
	p := c.pending
	c.pending = nil
	if p != nil && waited {
		c.call.Answered(failure, c.call.Age())
	}
	switch {
	case p == nil:
	case m.ended != nil:
		c.call.HedgeEnded(failure, p.after)
	case waited:
		c.call.HedgeEnded(failure, c.call.Age()-p.sent)
	default:
		c.call.HedgeCutShort(p.after)
	}
}

// waited reports whether the call's age is the time to the first message, which RecvMsg, called at the age asked, has
// just received: somebody was waiting all the time. A caller counts as waiting from the start if it has waited for at
// least half of the age. From Header, whose headers may have brought the message with them, to RecvMsg a moment may have
// passed. How long that may be does not go by the age: calls that happen to be slow must not be learned from sooner.
func (c *clientStream) waited(asked time.Duration) bool {
	age, h := c.call.Age(), c.headersWaited()
	return age >= 2*asked || h.came && h.at >= 2*h.asked && asked-h.at <= late
}

// early reports whether the headers, which decided the call, came before the first message, which RecvMsg, called at
// the age asked, has just received. They came with it if RecvMsg had not to wait for it after them; that it was at
// work for a moment is no wait.
func (c *clientStream) early(asked time.Duration) bool {
	age, h := c.call.Age(), c.headersWaited()
	after := age - max(asked, h.at)
	return h.came && after >= late && 8*after >= age
}
