package call

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/stats"
)

// Wait is when the caller of a stream waits, and for what. The first message ends the call, and may
// come long before the caller asks for it, or after headers that have decided the race.
type Wait struct {
	sync.Mutex // guards the fields below ForMessage, Call.Start with ForRequest, and what the stream puts under it

	ForRequest bool // the call begins with its request, not with its stream
	ForMessage bool // Header waits for the first message

	Began   bool // the caller waits or has waited: the class is fixed
	unsent  bool // the request is to come; only with ForRequest
	headers headerWait
}

// headerWait is a wait for the response headers. Its times are ages of the call.
type headerWait struct {
	came        bool          // headers came
	over        bool          // the stream ended without headers
	askedAt, at time.Duration // when Header was called, and when it returned
}

// IsSingleRequest reports whether hedge.WithSingleRequest names a method.
func IsSingleRequest(r *registry.Registry, target, method string) bool {
	m := r.Method(target, method, time.Now())
	return m != nil && m.Settings().SingleRequest
}

// ExpectSingleRequest is called for a stream of a method of hedge.WithSingleRequest. The stream is
// not hedged if a second request is expected.
func (c *Call) ExpectSingleRequest() {
	if c.method != nil && c.method.SecondRequests.Expected() {
		c.NotReplayable()
	}
}

func (c *Call) SecondRequest() {
	c.method.SecondRequests.Add()
	c.method.Counters.Update(func(s *stats.Counts) { s.SecondRequest++ })
}

// PassThrough counts a client-streaming or bidirectional call that is not hedged, and returns it.
// Only its SetUp may be called. It uses the options [OffOption] and [ReportOption].
func PassThrough(
	r *registry.Registry, ctx context.Context, target, method string, conn Conn, opts ...grpc.CallOption,
) Call {
	o := inContext(ctx).with(opts)
	if o.report != nil {
		o.report(stats.Outcome{Attempts: 1, Reason: stats.NotServerStream})
	}
	c := Call{Leg: Leg{Conn: conn}}
	m := r.Method(target, method, time.Now())
	if m == nil {
		return c
	}
	s, paused := m.Begins(conn, o.static)
	m.Counters.PassedThrough.Add(1)
	m.Counters.Flush()
	if o.off || s.Off {
		c.why = stats.SwitchedOff
	} else if paused {
		c.why = stats.Paused
	}
	hide(&c)
	return c
}

// HeadersDecide reports whether the first headers decide a stream, as in gRPC, and not the first
// message.
func (c *Call) HeadersDecide() bool { return c.settings != nil && c.settings.AsGRPC }

// WaitsForMessage reports whether Header of a stream waits for the first message: see
// hedge.WithWaitForMessage.
func (c *Call) WaitsForMessage(typeIsKnown func() bool) bool {
	s := c.settings
	return s != nil && s.WaitsForMessage && (s.Acceptable == nil || typeIsKnown())
}

// SetWait makes the call one of a stream. It must be called before the request is sent. w has its
// constant fields.
func (c *Call) SetWait(w *Wait) {
	c.Wait = w
	w.unsent = w.ForRequest
}

// BeginWithRequest makes a call with Wait.ForRequest begin now, unless it has ended. The caller may
// have opened the stream long before, and may be waiting in a race, which restart restarts if it
// can. The lock of Wait is held during restart.
func (c *Call) BeginWithRequest(restart func(now time.Time) bool) {
	now, w := time.Now(), c.Wait
	w.Lock()
	defer w.Unlock()
	switch {
	case !w.unsent:
	case !w.Began || restart(now):
		c.Start = now
	default: // the primary was chosen before the request
		c.Learns = false
	}
	w.unsent = false
}

// NoteHeaders records the time at which the caller got the headers that decided the call, or would
// have decided a hedged one. If came is not set, the stream ended without headers. askedAt is the
// age at which the caller asked for them.
func (c *Call) NoteHeaders(askedAt time.Duration, came bool) {
	at, w := c.Age(), c.Wait
	w.Lock()
	defer w.Unlock()
	if w.headers == (headerWait{}) {
		w.headers = headerWait{came: came, over: !came, askedAt: askedAt, at: at}
	}
}

func (w *Wait) headersWaited() headerWait {
	w.Lock()
	defer w.Unlock()
	return w.headers
}

// First ends the call, unless it has ended, with the first message of its stream, or with the end
// of the stream. RecvMsg was called at the age askedAt, and has just returned err.
func (c *Call) First(askedAt time.Duration, err error, trailer func() metadata.MD) {
	if c.ended {
		return
	}
	h := c.Wait.headersWaited()
	e := Completion{Age: c.Age(), AskedAt: askedAt}
	if h.over && askedAt >= h.at { // the stream ended before RecvMsg
		e.Age, e.AskedAt = h.at, h.askedAt
	}
	if err != nil && err != io.EOF {
		e.Err, e.Trailer = err, trailer()
	}
	if h.waited(e.AskedAt, e.Age) {
		e.AskedAt = 0
	}
	c.End(e)
}

// complete adds to e, the completion of a stream's call, the facts that w has.
func (w *Wait) complete(c *Call, e *Completion) {
	if e.Age == 0 {
		e.Age = c.Age()
	}
	w.Lock()
	defer w.Unlock()
	if w.unsent { // from here on, BeginWithRequest does not change the start
		w.unsent, c.Learns = false, false
	}
	e.early = !w.ForMessage && w.headers.early(e.AskedAt, e.Age)
}

// waited reports whether age, at which RecvMsg returned the first message, is the latency, because
// the caller waited for the message. RecvMsg was called at askedAt. A caller counts as waiting if
// it waited for at least half of the age, or if it waited for the headers and then called RecvMsg
// within Grace. The grace period does not depend on the age: otherwise more slow calls than fast
// ones would be learned.
func (h headerWait) waited(askedAt, age time.Duration) bool {
	return age >= 2*askedAt || h.came && h.at >= 2*h.askedAt && askedAt-h.at <= Grace
}

// early reports whether the headers that decided the call came well before the first message:
// RecvMsg, called at askedAt, waited after them for at least Grace and an eighth of the age.
func (h headerWait) early(askedAt, age time.Duration) bool {
	after := age - max(askedAt, h.at)
	return h.came && after >= Grace && 8*after >= age
}
