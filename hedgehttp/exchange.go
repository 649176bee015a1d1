package hedgehttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
)

// exchange is the race for one request. It implements [race.Entrant] and, for the primary,
// [race.Ending].
type exchange struct {
	*transport
	caller  *http.Request
	body    []byte // of the request; nil: none
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
	func() {
		inspected := false
		defer func() {
			if !inspected && req.Body != nil { // a function of an option has panicked
				req.Body.Close()
			}
		}()
		x.call = t.begin(req)
		x.call.Inspect(req, nil, nil)
		inspected = true
	}()
	if x.call.Hedged() || x.call.Teaches() {
		if once := x.readAhead(); once != nil {
			x.call.NotReplayable()
			x.call.Learns = isNone(once.Body) // otherwise the latency includes the upload
			return x.once(once)
		}
	}
	if !x.call.Hedged() {
		if x.body != nil {
			req = req.WithContext(req.Context())
			x.setBody(req)
		}
		return x.once(req)
	}

	ctx, cancel := context.WithCancelCause(req.Context())
	x.trace.GotConn = func(to httptrace.GotConnInfo) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.conn = to.Conn
	}
	x.primary = attempt{exchange: x, cancel: cancel, req: req.Clone(httptrace.WithClientTrace(ctx, &x.trace))}
	rpc.UnmarkHTTP(x.primary.req.Header)
	var winner *attempt
	defer func() { // also if an attempt panics
		for _, a := range append(x.hedges, &x.primary, x.next) {
			if a != nil && a != winner {
				a.drop()
			}
		}
	}()
	if x.hedgeRequest != nil {
		x.call.GoElsewhere(x.destination)
	}
	out := x.race.Run(req.Context(), cancel, x.call.Plan(), &x.call, x)
	winner = &x.primary
	if out.Winner != nil {
		winner = out.Winner.(*attempt)
	}
	if out.Untouched {
		x.call.End(call.Completion{Err: out.Err, Trailer: winner.Trailer()})
	}
	return winner.deliver()
}

// once sends an unhedged request, and learns its latency. A response whose body has the answer is
// returned with its headers; its latency is learned when the caller has read the answer.
func (x *exchange) once(req *http.Request) (*http.Response, error) {
	if rpc.MarkedHTTP(req.Header) {
		req = req.Clone(req.Context())
		rpc.UnmarkHTTP(req.Header)
	}
	again := settings.IsSafe(req.Method) && (isNone(req.Body) || x.body != nil)
	res, err := x.roundTrip(x.base, req, again)
	judged := false
	defer func() {
		if !judged && res != nil && res.Body != nil { // the function of WithFirstByte has panicked
			res.Body.Close()
		}
	}()
	end, known := x.firstAnswer(req, res, err)
	judged = true
	if res != nil && res.Request == req {
		res.Request = x.caller
	}
	if !known && end.err == nil && x.call.Teaches() {
		res.Body = &unhedgedBody{ReadCloser: res.Body, exchange: x, res: res, headers: x.call.Age()}
	} else {
		x.call.End(call.Completion{Err: end.err, Trailer: end.pushback})
	}
	return res, err
}

// maxBody is the size of the largest request body that is kept for hedges.
const maxBody = 1 << 20

// readAhead reads the body of the request, so that each attempt can send it. If the request can be
// sent only once, readAhead returns the request to send. A body without GetBody and of unknown
// length is not read, because the caller may write it while it reads the response. The call begins
// when the body has been read: its latency is the server's, and not that of the upload.
func (x *exchange) readAhead() (once *http.Request) {
	req := x.caller
	switch {
	case req.Method == http.MethodConnect || req.Header.Get("Upgrade") != "" || req.Header.Get("Expect") != "":
		return req
	case isNone(req.Body):
		return nil
	case req.ContentLength > maxBody || req.GetBody == nil && req.ContentLength <= 0:
		return req
	}
	closeBody := sync.OnceValue(req.Body.Close)
	stop := context.AfterFunc(req.Context(), func() { closeBody() })
	read, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	x.call.Start = time.Now()
	if stop() && err == nil && len(read) <= maxBody {
		closeBody()
		x.body = read
		return nil
	}
	rest := io.Reader(req.Body)
	if err != nil {
		failed, w := io.Pipe()
		w.CloseWithError(err)
		rest = failed
	}
	once = req.WithContext(req.Context())
	once.Body = closing{io.MultiReader(bytes.NewReader(read), rest), closeBody}
	return once
}

type closing struct {
	io.Reader
	close func() error
}

func (c closing) Close() error { return c.close() }

func (x *exchange) Primary() error { return x.primary.send(x.base) }

func (x *exchange) Hedge(_ int, freeRace context.CancelCauseFunc) race.Attempt {
	h := x.next
	if x.next = nil; h == nil {
		h = x.newHedge()
	}
	cancel := h.cancel
	h.cancel = func(cause error) { cancel(cause); freeRace(cause) }
	x.hedges = append(x.hedges, h)
	return h
}

// newHedge returns a hedge with a copy of the caller's request. The copy is made before Run, because
// the caller may get its request back.
func (x *exchange) newHedge() *attempt {
	// Not the race's context: a rejected response that wins is read after the race has ended that.
	ctx, cancel := context.WithCancelCause(x.caller.Context())
	return &attempt{exchange: x, req: x.caller.Clone(ctx), cancel: cancel}
}

func (x *exchange) Accepts(err error) (ok, open bool) { return x.primary.Accepts(err) }

func (x *exchange) Trailer() metadata.MD { return x.primary.Trailer() }

// attempt is one attempt of a request. A hedge implements [race.Attempt]; the exchange is the
// [race.Ending] of the primary.
type attempt struct {
	*exchange
	cancel context.CancelCauseFunc // of the context, which the body of a response needs too
	req    *http.Request           // a copy: the transport may break the contract and write to its headers

	res     *http.Response
	err     error       // of the transport
	end     answer      // as the race sees it
	kept    []byte      // the beginning of the body, if that has the answer
	settled atomic.Bool // see settle

	made    bool        // the request is that of WithHedgeRequest
	started atomic.Bool // such a request is being sent, or will not be
}

// send sends the request through rt and waits for the answer.
func (a *attempt) send(rt http.RoundTripper) error {
	defer a.settle()
	req := a.req
	if !a.made {
		a.setBody(req)
	}
	if a.res, a.err = a.roundTrip(rt, req, !a.made); a.res != nil && a.res.Request == req && !a.made {
		a.res.Request = a.caller
	}
	known := false
	if a.end, known = a.firstAnswer(req, a.res, a.err); !known || a.open.Load() {
		a.peek(known)
	}
	return a.end.err
}

// peek reads the body until it shows the answer. Once the primary has the headers of a stream, a
// hedge answers only with the first byte of another one.
func (a *attempt) peek(known bool) {
	hedge := a != &a.primary
	if !hedge && a.end.err == nil {
		a.open.Store(true)
	}
	late := hedge && a.open.Load()
	for err := error(nil); err == nil && (!known || late && a.end.err == nil && len(a.kept) == 0); {
		n := 0
		a.kept = slices.Grow(a.kept, 512)
		n, err = a.res.Body.Read(a.kept[len(a.kept):cap(a.kept)])
		a.kept = a.kept[:len(a.kept)+n]
		a.end, known = a.answerOf(a.req, a.res, a.kept, err)
	}
	if late && a.end.err == nil && (len(a.kept) == 0 || a.res.StatusCode >= 300) {
		a.end = failed(errors.New("the primary's stream is open"))
	}
}

// roundTrip sends req through rt. If package net/http cancels a loser as its response arrives, it may
// fail the next request on that connection, with the loser's cause. Such a request is sent again if it
// may be.
func (x *exchange) roundTrip(rt http.RoundTripper, req *http.Request, again bool) (*http.Response, error) {
	for {
		res, err := rt.RoundTrip(req)
		if err == nil || !again || !errors.Is(err, rpc.ErrLost) || req.Context().Err() != nil {
			return res, err
		}
		x.setBody(req)
	}
}

// setBody gives req the body that was read ahead.
func (x *exchange) setBody(req *http.Request) {
	if x.body != nil {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
		req.Body, _ = req.GetBody()
	}
}

// settle is called when send has returned, and for a loser. The second call closes the response.
func (a *attempt) settle() {
	if a.settled.Swap(true) && a.res != nil && a.res.Body != nil {
		a.res.Body.Close()
	}
}

// drop ends a loser, which may still be running.
func (a *attempt) drop() {
	a.cancel(rpc.ErrLost)
	a.unsend()
	a.settle()
}

// deliver returns the winner's response. The attempt's context ends when the body has been read or
// closed.
func (a *attempt) deliver() (*http.Response, error) {
	if a.err != nil || a.res == nil || hasNone(a.req, a.res) || a.res.ProtoMajor > 1 && a.res.ContentLength == 0 {
		a.cancel(nil)
	} else {
		a.res.Body = &body{ReadCloser: a.res.Body, kept: a.kept, release: a.cancel}
	}
	return a.res, a.err
}

// Run sends a hedge.
func (a *attempt) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { a.cancel(context.Cause(ctx)) })()
	if a.made && a.started.Swap(true) {
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
	a.req = a.req.WithContext(hedgeContext{a.req.Context(), ctx, hooks})
	rpc.MarkHTTP(a.req.Header, ctx)
	return a.send(a.transport.hedges)
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

// hedgeContext is the context of a hedge, with the values of the caller's context and of the
// race's, but without the caller's hooks.
type hedgeContext struct {
	context.Context
	race  context.Context
	hooks context.Context // of the hedge
}

func (c hedgeContext) Value(key any) any {
	for _, in := range []context.Context{c.hooks, c.Context, c.race} {
		if v := in.Value(key); v != nil {
			return v
		}
	}
	return nil
}
