package stream

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
)

// reporting tells the call of a stream about its request, and how long its first message took.
type reporting struct {
	call           call.Call
	raced          *race.Report // of a race that headers have decided; nil: there was none
	ended          bool         // the call was told how it ended
	tracksFailures bool         // failures and their trailers count, for a throttle or a hedgingPolicy
	inspects       bool         // what the user says of the request decides when it is hedged, or what a hedge costs
	inspected      bool         // that is known; used by SendMsg only
	requests       uint8        // messages sent, 2 for more; used by SendMsg only
	begun          bool         // RecvMsg or Header was called, so that what the user says of the request comes too late
	mu             sync.Mutex   // guards begun and headers
	headers        headerWait   // the wait for the headers that decided the call
}

// headerWait is a wait for the response headers. Its times are ages of the call.
type headerWait struct {
	came        bool          // there were headers
	over        bool          // there were none, as the stream had ended
	askedAt, at time.Duration // when the caller asked for them, and when they were there
}

func (r *reporting) reportTo(c *call.Call) {
	r.call, r.tracksFailures, r.inspects = *c, c.TracksFailures(), c.Inspects()
}

// sends notes a message that the caller sends, and reports whether it is a second one.
func (r *reporting) sends(m any) (second bool) {
	if r.requests < 2 {
		if r.requests++; r.requests == 2 {
			r.call.SecondRequest()
		}
	}
	r.inspect(m)
	return r.requests > 1
}

// inspect tells the call what the user's functions say of its request, unless somebody waits for an answer to it already. No
// lock is held while they run.
func (r *reporting) inspect(m any) {
	if !r.inspects || r.inspected {
		return
	}
	r.inspected = true
	traits := r.call.TraitsOf(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		r.call.SetTraits(traits)
	}
}

func (r *reporting) begin() {
	if r.inspects {
		r.mu.Lock()
		r.begun = true
		r.mu.Unlock()
	}
}

// headersCame records when the headers that decided the call came, or, if header is nil, when the stream ended without any. The
// caller asked for them at the age askedAt.
func (r *reporting) headersCame(askedAt time.Duration, header metadata.MD) {
	at := r.call.Age()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.headers == (headerWait{}) {
		r.headers = headerWait{came: header != nil, over: header == nil, askedAt: askedAt, at: at}
	}
}

func (r *reporting) headersWaited() headerWait {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers
}

// endWith ends the call by the first message of st, or the end of the stream, which was received when nothing else could decide
// the call. RecvMsg was called at the age askedAt, and has just received it with err.
func (r *reporting) endWith(st grpc.ClientStream, askedAt time.Duration, err error) {
	if r.ended {
		return
	}
	h := r.headersWaited()
	e := call.End{Race: r.raced, Headers: r.raced != nil, Err: outcome(err), Age: r.call.Age(), AskedAt: askedAt}
	if h.over && askedAt >= h.at { // the end was there before RecvMsg
		e.Age, e.AskedAt = h.at, h.askedAt
	}
	if r.tracksFailures && e.Err != nil {
		e.Trailer = st.Trailer()
	}
	if h.waited(e.AskedAt, e.Age) {
		e.AskedAt = 0
	}
	r.end(e)
}

// end tells the call how it ended.
func (r *reporting) end(e call.End) {
	e.Early = r.headersWaited().early(e.AskedAt, e.Age)
	r.call.End(e)
	r.ended = true
}

// waited reports whether the age of the call is the time to the first message, because the caller was waiting for it. RecvMsg was
// called at the age askedAt, and has just received the message. A caller that has waited for at least half of the age
// counts as waiting from the start. A caller that waited for the headers, and then called RecvMsg within the grace period,
// counts too, because the message may have come with the headers. The grace period does not depend on the age: if it did,
// slow calls would be learned from more often than fast ones.
func (h headerWait) waited(askedAt, age time.Duration) bool {
	return age >= 2*askedAt || h.came && h.at >= 2*h.askedAt && askedAt-h.at <= grace
}

// early reports whether the headers that decided the call came well before the first message. RecvMsg was called at the age
// askedAt, and has just received the message. The headers are early if RecvMsg then waited for at least the grace period and
// an eighth of the call's age.
func (h headerWait) early(askedAt, age time.Duration) bool {
	after := age - max(askedAt, h.at)
	return h.came && after >= grace && 8*after >= age
}
