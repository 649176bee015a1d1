package stream

import (
	"time"

	"google.golang.org/grpc/metadata"
)

// headerWait is a wait for the response headers. Its times are ages of the call.
type headerWait struct {
	came        bool          // there were headers
	askedAt, at time.Duration // when the caller asked for them, and when they were there
}

// headerWin is a hedge that won by its headers.
type headerWin struct {
	sent  time.Duration // the call's age when the hedge was sent
	after time.Duration // from then to its headers
}

// headersCame records when the headers that decided the call came, if header is not nil. The caller asked for them at the
// age askedAt.
func (c *clientStream) headersCame(askedAt time.Duration, header metadata.MD) {
	at := c.call.Age()
	c.mu.Lock()
	defer c.mu.Unlock()
	if header != nil && !c.headers.came {
		c.headers = headerWait{came: true, askedAt: askedAt, at: at}
	}
}

func (c *clientStream) headersWaited() headerWait {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers
}

// learn records the primary's time to first message, or a lower bound of it, at the given age. known says that err is the
// outcome of the first receive. waited says that the caller was waiting for it: if not, the message may have arrived long
// before, and the age is no latency.
func (c *clientStream) learn(err error, age time.Duration, known, waited bool) {
	gone := err != nil && c.caller.Err() != nil
	if known && err == nil {
		c.call.PrimaryAnswered()
	}
	switch {
	case c.learned: // a deadline that expires after the headers came is reported twice
	case gone || known && waited:
		c.learned = true
		c.call.EndedAt(err, age, gone)
	case known && err == nil:
		c.call.Succeeded()
	}
}

// learnFirstMessage learns from the first message of m, or the end of the stream, which was received after m was chosen.
// RecvMsg was called at the age askedAt, and has just received it.
func (c *clientStream) learnFirstMessage(m *streamAttempt, askedAt time.Duration, err error) {
	failure := outcome(err)
	if c.early(askedAt) {
		c.call.EarlyHeaders()
	}
	waited := c.waited(askedAt)
	if m == &c.primary {
		if failure != nil && (!c.raced || m.ended == nil) { // a race reports the failures in it
			c.call.Failing(failure)
			if c.tracksFailures {
				c.call.Failed(failure, m.Trailer())
			}
		}
		c.learn(failure, c.call.Age(), true, waited)
		return
	}
	p := c.headerWin
	c.headerWin = nil
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

// waited reports whether the call's age is the time to the first message, because the caller was waiting for it. RecvMsg was
// called at the age askedAt, and has just received the message. A caller that has waited for at least half of the age
// counts as waiting from the start. A caller that waited for the headers, and then called RecvMsg within the grace period,
// counts too, because the message may have come with the headers. The grace period does not depend on the age: if it did,
// slow calls would be learned from more often than fast ones.
func (c *clientStream) waited(askedAt time.Duration) bool {
	age, h := c.call.Age(), c.headersWaited()
	return age >= 2*askedAt || h.came && h.at >= 2*h.askedAt && askedAt-h.at <= grace
}

// early reports whether the headers that decided the call came well before the first message. RecvMsg was called at the age
// askedAt, and has just received the message. The headers are early if RecvMsg then waited for at least the grace period and
// an eighth of the call's age.
func (c *clientStream) early(askedAt time.Duration) bool {
	age, h := c.call.Age(), c.headersWaited()
	after := age - max(askedAt, h.at)
	return h.came && after >= grace && 8*after >= age
}
