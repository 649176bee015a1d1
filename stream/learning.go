package stream

import (
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/race"
)

// headerWait is a wait for the response headers. Its times are ages of the call.
type headerWait struct {
	came        bool          // there were headers
	askedAt, at time.Duration // when the caller asked for them, and when they were there
}

// ending says how far the end of the call has been told.
type ending uint8

const (
	untold      ending = iota
	toldHeaders        // the race was told, which headers have decided: the first message is still to come
	told
)

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

// endWith ends the call by the first message of m, or the end of the stream, which was received after m was chosen. RecvMsg was
// called at the age askedAt, and has just received it with err.
func (c *clientStream) endWith(m *streamAttempt, askedAt time.Duration, err error) {
	if c.ending == told {
		return
	}
	e := engine.End{Err: outcome(err), AskedAt: askedAt, Early: c.early(askedAt), Over: m.ended != nil}
	if c.tracksFailures && e.Err != nil {
		e.Trailer = m.Trailer()
	}
	if c.waited(askedAt) {
		e.AskedAt = 0
	}
	if c.ending == toldHeaders {
		c.call.FirstMessage(e, c.hedgeWon)
	} else {
		c.call.End(e)
	}
	c.ending = told
}

// endUntouched ends the call by its primary, which ended with err before a hedge was due, unless its headers are all that came.
func (c *clientStream) endUntouched(err error) {
	if err == nil && c.goal != firstMessage && !c.primary.answered() {
		return
	}
	e := engine.End{Err: err, AskedAt: c.askedAt, Early: c.early(c.askedAt)}
	if c.tracksFailures && err != nil {
		e.Trailer = c.primary.Trailer()
	}
	c.call.End(e)
	c.ending = told
}

// endRaced ends the call by the report of its race. If headers have decided it, the first message is still to come.
func (c *clientStream) endRaced(r *race.Report) {
	e := engine.End{Race: r, AskedAt: c.askedAt, Early: c.early(c.askedAt), Headers: c.goal != firstMessage, Over: c.primary.answered()}
	c.ending = told
	switch winner := &r.Attempts[r.Winner]; {
	case !e.Headers, r.Panicked:
	case r.Winner == 0 && !e.Over:
		c.ending = toldHeaders
	case r.Winner > 0 && winner.End != race.NonFatal:
		hedge := *winner // the report is not kept
		c.ending, c.hedgeWon = toldHeaders, &hedge
	}
	c.call.End(e)
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
