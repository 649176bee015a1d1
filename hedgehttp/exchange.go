package hedgehttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
)

// exchange is one request of the caller. Its primary implements [race.Entrant].
type exchange struct {
	*transport
	caller  *http.Request
	upload  []byte // the body that was read ahead; nil: none
	again   bool   // the request may be sent again: see send
	race    race.Race
	call    call.Call
	primary attempt
	hedges  []*attempt
	next    *attempt    // the hedge that WithHedgeRequest has made, until it is sent
	open    atomic.Bool // the primary has the headers of a stream, and no answer yet

	trace httptrace.ClientTrace // of the primary
	mu    sync.Mutex
	conn  net.Conn // of the primary; nil: not known yet
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil || req.Header == nil { // base returns an error
		return t.base.RoundTrip(req)
	}
	x := &exchange{transport: t, caller: req}
	x.primary = attempt{exchange: x, req: req, cancel: func(error) {}}
	winner := (*attempt)(nil)
	defer func() { // also if an attempt, or a function of an option, panics
		for _, a := range append(x.hedges, &x.primary, x.next) {
			if a != nil && a != winner {
				a.drop()
			}
		}
	}()
	x.call = t.begin(req)
	x.call.Inspect(req, nil, nil)
	if x.call.Hedged || x.call.Teaches() {
		x.primary.req = x.readAhead()
	}
	hedged, ctx := x.call.Hedged, req.Context()
	x.again = (hedged || settings.IsSafe(req.Method)) && (isNone(req.Body) || x.upload != nil)
	if hedged {
		ctx, x.primary.cancel = context.WithCancelCause(ctx)
		x.trace.GotConn = func(to httptrace.GotConnInfo) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.conn = to.Conn
		}
		ctx = httptrace.WithClientTrace(ctx, &x.trace)
	}
	if hedged || x.upload != nil || rpc.MarkedHTTP(req.Header) {
		x.primary.req = x.primary.req.Clone(ctx)
		rpc.UnmarkHTTP(x.primary.req.Header)
		x.primary.setBody()
	}
	if x.primary.started.Store(true); !hedged {
		res, err := x.primary.unhedged()
		winner = &x.primary
		return res, err
	}
	if x.hedgeRequest != nil {
		x.call.GoElsewhere(func(int) call.Destination { return call.Destination{Target: x.targetOf(x.next.req.URL)} }, false)
	}
	out := x.race.Run(req.Context(), x.primary.cancel, x.call.Plan(), &x.call, &x.primary)
	winner = &x.primary
	if out.Winner != nil {
		winner = out.Winner.(*attempt)
	}
	if out.Untouched {
		x.call.End(call.Completion{Err: out.Err, Trailer: winner.Trailer()})
	}
	return winner.deliver()
}

// unhedged sends an unhedged request, and learns its latency. A response whose body has the answer is
// returned with its headers; its latency is learned when the caller has read the answer.
func (a *attempt) unhedged() (*http.Response, error) {
	defer a.settle()
	if a.send(a.base); !a.known && a.end.err == nil && a.call.Teaches() {
		a.headers = a.call.Age()
		return a.deliver()
	}
	a.call.End(call.Completion{Err: a.end.err, Trailer: a.end.pushback})
	return a.res, a.err
}

func (x *exchange) Primary() error { return x.primary.answer(x.base) }

// Replayable makes the next hedge by the function of WithHedgeRequest, if there is one. A hedge that
// is held back is made once.
func (x *exchange) Replayable() bool {
	if x.hedgeRequest == nil || x.next != nil {
		return true
	}
	h := x.newHedge()
	h.made = true
	x.next = h // also if the function panics
	req, err := x.hedgeRequest(len(x.hedges)+1, h.req)
	if req != nil {
		h.req = req.Clone(req.Context()) // the function may return the same request for several hedges
	}
	if err != nil || req == nil || req.URL == nil || req.Header == nil {
		h.drop()
		x.next = nil
		return false
	}
	return true
}

// newHedge returns a hedge with a copy of the caller's request. The copy is made before Run, because
// the caller may get its request back.
func (x *exchange) newHedge() *attempt {
	h := &attempt{exchange: x, req: x.caller.Clone(x.caller.Context()), cancel: func(error) {}}
	h.setBody()
	return h
}

func (x *exchange) Hedge(_ int, freeRace context.CancelCauseFunc) race.Attempt {
	h := x.next
	if x.next = nil; h == nil {
		h = x.newHedge()
	}
	// Not the race's context: a rejected response that wins is read after the race has ended that.
	caller, parent, cancel := x.caller.Context(), context.Background(), context.CancelCauseFunc(nil)
	timer := func() {}
	if at, ok := caller.Deadline(); ok { // its end is a timeout, and no cancellation
		parent, timer = context.WithDeadline(parent, at)
	}
	h.ctx, cancel = context.WithCancelCause(parent)
	stop := context.AfterFunc(caller, func() {
		if parent.Done() == nil || !errors.Is(caller.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(caller))
		}
	})
	h.cancel = func(cause error) { stop(); cancel(cause); timer(); freeRace(cause) }
	x.hedges = append(x.hedges, h)
	return h
}

// attempt is one attempt of a request. A hedge implements [race.Attempt].
type attempt struct {
	*exchange
	ctx    context.Context         // of a hedge; it has the caller's end, and no value
	cancel context.CancelCauseFunc // of the context, which the body of a response needs too
	req    *http.Request           // a copy: the transport may break the contract and write to its headers
	made   bool                    // WithHedgeRequest made the request

	res     *http.Response
	err     error  // of the transport
	end     answer // as the race sees it
	known   bool   // the end is known; otherwise it is in the body
	kept    []byte // the beginning of the body, if that has the answer
	headers time.Duration

	started atomic.Bool // the request is being sent, or will not be
	settled atomic.Bool // see settle
}

// answer sends the request through rt and waits for the answer.
func (a *attempt) answer(rt http.RoundTripper) error {
	defer a.settle()
	if a.send(rt); a == &a.primary && !a.known && a.end.err == nil {
		a.open.Store(true)
	}
	for !a.known {
		a.peek(a.res.Body)
	}
	return a.end.err
}

// send sends the request through rt and waits for the response. If package net/http cancels a loser
// as its response arrives, it may fail the next request on that connection, with the loser's cause.
// Such a request is sent again if it may be.
func (a *attempt) send(rt http.RoundTripper) {
	a.res, a.err = rt.RoundTrip(a.req)
	for errors.Is(a.err, rpc.ErrLost) && a.again && !a.made && a.req.Context().Err() == nil {
		a.setBody()
		a.res, a.err = rt.RoundTrip(a.req)
	}
	if a.res != nil && a.res.Request == a.req && !a.made {
		a.res.Request = a.caller
	}
	a.judge(nil)
}

// settle is called when the answer is known, and for a loser. The second call closes the response.
func (a *attempt) settle() {
	if a.settled.Swap(true) && a.res != nil && a.res.Body != nil {
		a.res.Body.Close()
	}
}

// drop ends a loser, which may still be running.
func (a *attempt) drop() {
	a.cancel(rpc.ErrLost)
	if !a.started.Swap(true) && a.req.Body != nil {
		a.req.Body.Close()
	}
	a.settle()
}

// deliver returns the winner's response. The attempt's context ends when the body has been read or
// closed.
func (a *attempt) deliver() (*http.Response, error) {
	if a.err != nil || a.res == nil || a.hasNone() || a.endedWithItsHeaders() {
		a.cancel(nil)
	} else {
		a.res.Body = &body{ReadCloser: a.res.Body, of: a}
	}
	return a.res, a.err
}

// endedWithItsHeaders reports whether a response over HTTP/2 ended with its headers, which net/http
// shows by a length that the server has not sent. Otherwise trailers may follow, also after no body.
func (a *attempt) endedWithItsHeaders() bool {
	return a.res.ProtoMajor > 1 && a.res.ContentLength == 0 && a.res.Header.Get("Content-Length") == ""
}

// Run sends a hedge.
func (a *attempt) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { a.cancel(context.Cause(ctx)) })()
	if a.started.Swap(true) {
		return context.Cause(ctx)
	}
	// Under the keys of package httptrace and of package net, in place of the caller's hooks.
	met := false
	hooks := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) {},
		GotConn: func(to httptrace.GotConnInfo) { // again if package net/http tries another connection
			a.mu.Lock()
			primary := a.conn
			a.mu.Unlock()
			if !met && primary != nil && to.Conn != nil {
				met = true
				a.call.HedgeConn(primary, to.Conn)
			}
		},
	})
	a.req = a.req.WithContext(hedgeContext{a.ctx, ctx, hooks})
	rpc.MarkHTTP(a.req.Header, ctx)
	return a.answer(a.transport.hedges)
}

func (a *attempt) Accepts(err error) (ok, open bool) {
	if a.res == nil {
		return a.call.Accepts(nil, err), false
	}
	return a.call.Accepts(a.res, err), false
}

// Served implements [race.Attempt].
func (a *attempt) Served() bool { return a.end.decides && !a.open.Load() }

func (a *attempt) Trailer() metadata.MD { return a.end.pushback }

// hedgeContext is the context of a hedge, with the values of the race's context, but without the
// caller's hooks.
type hedgeContext struct {
	context.Context
	race  context.Context // no value and no deadline once the hedge has lost
	hooks context.Context // of the hedge
}

func (c hedgeContext) Deadline() (time.Time, bool) { return c.race.Deadline() }

func (c hedgeContext) Value(key any) any {
	for _, in := range []context.Context{c.hooks, c.Context, c.race} {
		if v := in.Value(key); v != nil {
			return v
		}
	}
	return nil
}
