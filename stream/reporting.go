package stream

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/call"
)

// reporting passes the request of a stream, and the time to its first message, to its call.
type reporting struct {
	call      call.Call
	ended     bool       // call.End was called
	waits     bool       // Header waits for the first message
	bidi      bool       // the call begins with the request, and not with the stream
	unsent    bool       // the request of such a stream is to come; guarded by mu
	inspects  bool       // a function of WithClass or WithCost is due: see call.Call.Inspects
	inspected bool       // the functions were called; used by SendMsg only
	requests  uint8      // messages sent, 2 for more; used by SendMsg only
	begun     bool       // RecvMsg or Header was called: the class and cost are fixed
	mu        sync.Mutex // guards begun and headers, and changes of call.Start
	headers   headerWait // the wait for the headers that decided the call, or would have if hedged
}

// headerWait is a wait for the response headers. Its times are ages of the call.
type headerWait struct {
	came        bool          // headers came
	over        bool          // the stream ended without headers
	askedAt, at time.Duration // when Header was called, and when it returned
}

// age returns the age of the call; 0 before the call begins.
func (r *reporting) age() time.Duration {
	if r.bidi {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.unsent {
			return 0
		}
	}
	return time.Since(r.call.Start)
}

// sends counts a message that the caller sends, and reports whether it is the second or a later one.
func (r *reporting) sends(m any) (second bool) {
	if r.requests < 2 {
		if r.requests++; r.requests == 2 {
			r.call.SecondRequest()
		}
	}
	r.inspect(m)
	return r.requests > 1
}

// inspect lets the call inspect its request, once: see call.Call.Inspect.
func (r *reporting) inspect(m any) {
	if !r.inspects || r.inspected {
		return
	}
	r.inspected = true
	r.call.Inspect(m, &r.mu, &r.begun)
}

// headersCame records the time of the headers that decided the call or, if header is nil, of the
// end of a stream without headers. askedAt is the age at which the caller asked for them.
func (r *reporting) headersCame(askedAt time.Duration, header metadata.MD) {
	at := r.age()
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

// endWith ends the call with the first message of st, or the end of the stream, after the choice.
// RecvMsg was called at the age askedAt, and has just returned err.
func (r *reporting) endWith(st grpc.ClientStream, askedAt time.Duration, err error) {
	if r.ended {
		return
	}
	h := r.headersWaited()
	e := call.Completion{Err: failureOf(err), Age: r.age(), AskedAt: askedAt}
	if h.over && askedAt >= h.at { // the stream ended before RecvMsg
		e.Age, e.AskedAt = h.at, h.askedAt
	}
	if e.Err != nil {
		e.Trailer = st.Trailer()
	}
	if h.waited(e.AskedAt, e.Age) {
		e.AskedAt = 0
	}
	r.end(e)
}

func (r *reporting) end(e call.Completion) {
	if r.bidi {
		r.mu.Lock()
		if r.unsent { // from here on, SendMsg does not change the start
			r.unsent, r.call.Learns = false, false
		}
		r.mu.Unlock()
	}
	e.Early = !r.waits && r.headersWaited().early(e.AskedAt, e.Age)
	r.call.End(e)
	r.ended = true
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
