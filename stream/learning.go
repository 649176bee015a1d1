package stream

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/call"
)

// headerWait is a wait for the response headers. Its times are ages of the call.
type headerWait struct {
	came        bool          // headers came
	over        bool          // the stream ended without headers
	askedAt, at time.Duration // when Header was called, and when it returned
}

// age returns the age of the call; 0 before the call begins.
func (c *clientStream) age() time.Duration {
	if c.bidi {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.unsent {
			return 0
		}
	}
	return time.Since(c.call.Start)
}

// headersCame records the time of the headers that decided the call or, if header is nil, of the
// end of a stream without headers. askedAt is the age at which the caller asked for them.
func (c *clientStream) headersCame(askedAt time.Duration, header metadata.MD) {
	at := c.age()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headers == (headerWait{}) {
		c.headers = headerWait{came: header != nil, over: header == nil, askedAt: askedAt, at: at}
	}
}

func (c *clientStream) headersWaited() headerWait {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers
}

// endWith ends the call with the first message of st, or the end of the stream, after the choice.
// RecvMsg was called at the age askedAt, and has just returned err.
func (c *clientStream) endWith(st grpc.ClientStream, askedAt time.Duration, err error) {
	if c.ended {
		return
	}
	h := c.headersWaited()
	e := call.Completion{Err: failureOf(err), Age: c.age(), AskedAt: askedAt}
	if h.over && askedAt >= h.at { // the stream ended before RecvMsg
		e.Age, e.AskedAt = h.at, h.askedAt
	}
	if e.Err != nil {
		e.Trailer = st.Trailer()
	}
	if h.waited(e.AskedAt, e.Age) {
		e.AskedAt = 0
	}
	c.end(e)
}

func (c *clientStream) end(e call.Completion) {
	if c.bidi {
		c.mu.Lock()
		if c.unsent { // from here on, SendMsg does not change the start
			c.unsent, c.call.Learns = false, false
		}
		c.mu.Unlock()
	}
	e.Early = !c.waits && c.headersWaited().early(e.AskedAt, e.Age)
	c.call.End(e)
	c.ended = true
}

// waited reports whether age, at which RecvMsg returned the first message, is the latency, because
// the caller waited for the message. RecvMsg was called at askedAt. A caller counts as waiting if
// it waited for at least half of the age, or if it waited for the headers and then called RecvMsg
// within call.Grace. The grace period does not depend on the age: otherwise more slow calls than
// fast ones would be learned.
func (h headerWait) waited(askedAt, age time.Duration) bool {
	return age >= 2*askedAt || h.came && h.at >= 2*h.askedAt && askedAt-h.at <= call.Grace
}

// early reports whether the headers that decided the call came well before the first message:
// RecvMsg, called at askedAt, waited after them for at least call.Grace and an eighth of the age.
func (h headerWait) early(askedAt, age time.Duration) bool {
	after := age - max(askedAt, h.at)
	return h.came && after >= call.Grace && 8*after >= age
}
