package hedgehttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
)

// exchange is one request of the caller. Its primary implements [race.Entrant].
type exchange struct {
	*transport
	caller  *http.Request
	upload  *early // the body that was read ahead; nil: none
	race    race.Race
	call    call.Call
	primary attempt
	hedges  []*attempt
	next    *attempt        // the hedge that WithHedgeRequest has made, until it is sent
	again   bool            // send may send the request a second time
	may     call.HTTPOption // see begin
	open    atomic.Bool     // the primary has the headers of a stream, and no answer yet

	trace    httptrace.ClientTrace // of the primary
	mu       sync.Mutex
	conn     net.Conn    // of the primary; nil: not known yet
	patience *time.Timer // ends the race; nil: the primary does not wait for hedges
	over     bool        // RoundTrip returns
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
		x.stopWaiting()
		for _, a := range append(x.hedges, &x.primary, x.next) {
			if a != nil && a != winner {
				a.drop()
			}
		}
	}()
	x.begin()
	x.call.Inspect(req)
	if x.call.Hedged || x.call.Teaches() {
		x.primary.req = x.readUpload()
	}
	hedged, ctx := x.call.Hedged, req.Context()
	x.again = (hedged || settings.IsSafe(req.Method)) && (isNone(req.Body) || x.upload != nil)
	if hedged {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		x.primary.cancel = func(cause error) { x.primary.lose(cause, cancel) }
		x.trace.GotFirstResponseByte = x.primary.responseBegins
		x.trace.GotConn = func(to httptrace.GotConnInfo) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.conn = to.Conn
		}
		ctx = httptrace.WithClientTrace(ctx, &x.trace)
	}
	if hedged || x.upload != nil || rpc.HasHTTPMarks(req.Header) {
		trailer := x.primary.req.Trailer
		x.primary.req = x.primary.req.Clone(ctx)
		if rpc.HasHTTPMarks(req.Header) { // only the marks of its own context: a transport above this one sends a hedge
			rpc.MarkHTTP(x.primary.req.Header, ctx)
		}
		if x.upload == nil && !isNone(req.Body) { // the caller sets the trailers while the body is read
			x.primary.req.Trailer = trailer
		}
		x.primary.setBody()
	}
	x.primary.started.Store(true)
	if hedged && x.hedgeRequest != nil {
		x.call.GoElsewhere(func(int) (string, call.Conn) { return x.targetOf(x.next.req.URL), nil }, false)
	}
	out := x.call.Run(req.Context(), x.primary.cancel, &x.race, &x.primary)
	if winner = &x.primary; out.Winner != nil {
		winner = out.Winner.(*attempt)
	}
	if !hedged && !x.call.AnswersLater { // the response is the transport's
		winner.own()
		return winner.res, winner.err
	}
	return winner.deliver()
}

// own makes the caller's request the response's, in place of the attempt's or of a shallow copy of it:
// over HTTP/2, package net/http copies a request with a body. The response of a loser must not have the
// caller's: a function of WithFirstByte may read it after RoundTrip has returned.
func (a *attempt) own() {
	if a.res == nil || a.res.Request == nil || a.made || a.res.Request.URL != a.req.URL {
		return
	}
	if header := reflect.ValueOf(a.res.Request.Header); header.Pointer() == reflect.ValueOf(a.req.Header).Pointer() {
		a.res.Request = a.caller
	}
}

// Primary sends the caller's request. If it is not hedged, and the answer is in the body of the response,
// the latency is learned when the caller has read the answer.
func (x *exchange) Primary() race.End {
	a := &x.primary
	if x.call.Hedged {
		return a.answer(x.base)
	}
	defer a.settle()
	a.send(x.base)
	x.call.AnswersLater = !a.known && a.end.err == nil && x.call.Teaches()
	return race.End{Err: a.end.err, Trailer: a.end.pushback}
}

// Replayable makes the next hedge by the function of WithHedgeRequest, if there is one. A hedge that
// is held back is made once.
func (x *exchange) Replayable() bool {
	if x.hedgeRequest == nil || x.next != nil {
		return true
	}
	h := x.newHedge()
	h.made = true
	x.next = h // also if the function panics
	if h.req.Host == h.req.URL.Host {
		h.req.Host = "" // follows the URL's, which the function may change
	}
	body, again := h.req.Body, h.req.GetBody
	req, err := x.hedgeRequest(len(x.hedges)+1, h.req)
	if req != nil {
		h.req = req.Clone(req.Context()) // the function may return the same request for several hedges
		if req.Body != body && reflect.ValueOf(req.GetBody).Pointer() == reflect.ValueOf(again).Pointer() {
			h.req.GetBody = nil // it returns the body of the caller's request
		}
	}
	if err != nil || req == nil || req.URL == nil || req.Header == nil {
		h.drop()
		x.next = nil
		return false
	}
	return true
}

// newHedge returns a hedge with a copy of the caller's request. Run must not make the copy: RoundTrip
// may have returned, and the caller may change the request.
func (x *exchange) newHedge() *attempt {
	h := &attempt{exchange: x, req: x.caller.Clone(x.caller.Context()), cancel: func(error) {}}
	h.setBody()
	return h
}

func (x *exchange) Hedge(_ int, ctx *race.Context) race.Attempt {
	h := x.next
	if x.next = nil; h == nil {
		h = x.newHedge()
	}
	ctx.Hook(h.hooks())
	ctx.WrapCancel(h.lose)
	h.cancel = ctx.Cancel
	x.mu.Lock()
	x.hedges = append(x.hedges, h)
	x.mu.Unlock()
	h.free(raced)
	if x.primary.free(raced) {
		x.wait()
	}
	return h
}

// wait bounds the time for which a primary that has ended waits for the hedges.
func (x *exchange) wait() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	patience := x.call.Patience(len(x.hedges))
	if x.patience == nil {
		x.patience = time.AfterFunc(patience, x.race.Expire)
	} else {
		x.patience.Reset(patience)
	}
}

func (x *exchange) stopWaiting() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over = true; x.patience != nil {
		x.patience.Stop()
	}
}

// hooks returns a context with the hooks of a hedge, under the keys of package httptrace and of package
// net, which hides the caller's.
func (a *attempt) hooks() context.Context {
	met := false
	return httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		DNSStart:             func(httptrace.DNSStartInfo) {},
		GotFirstResponseByte: a.responseBegins,
		GotConn: func(to httptrace.GotConnInfo) { // again if package net/http tries another connection
			a.mu.Lock()
			primary := a.conn
			a.mu.Unlock()
			if !met && primary != nil && to.Conn != nil {
				met = true
				a.call.NoteHedgeConn(primary, to.Conn)
			}
		},
	})
}

// attempt is one attempt of a request. A hedge implements [race.Attempt].
type attempt struct {
	*exchange
	req    *http.Request           // a copy: the transport may break the contract and write to its headers
	cancel context.CancelCauseFunc // of its context, which the body of a response needs too

	res  *http.Response
	body early  // of the response
	err  error  // of the transport
	end  answer // as the race sees it

	known   bool         // the end is known; otherwise it is in the body
	made    bool         // WithHedgeRequest made the request
	started atomic.Bool  // the request is being sent, or will not be
	settled atomic.Bool  // settle was called
	arrival atomic.Int32 // begun and returned: see lose
	notes   atomic.Int32 // waits and raced: see free
}

// answer sends the request through rt and waits for the answer.
func (a *attempt) answer(rt http.RoundTripper) race.End {
	defer a.settle()
	if a.send(rt); a == &a.primary && !a.known && a.end.err == nil {
		a.open.Store(true)
	}
	if !a.known {
		ctx := a.req.Context()
		defer context.AfterFunc(ctx, func() { // a loser's body need not know its context
			if context.Cause(ctx) == rpc.ErrLost {
				a.body.Close()
			}
		})()
	}
	for !a.known {
		a.body.peek()
		a.judge()
	}
	if a.end.err != nil && context.Cause(a.req.Context()) != rpc.ErrLost {
		a.detach()
	}
	end := race.End{Err: a.end.err, Trailer: a.end.pushback, Served: a.end.decides && !a.open.Load(), Open: a.res != nil}
	if a.call.Judged {
		if a.res != nil {
			end.Reply = a.res
		}
		end.Rejected = a.detach
	}
	return end
}

// detach is called when the attempt has ended and the race may go on. It makes res a copy if the body is
// read ahead: the transport sets the trailers of the original when the body has been read.
func (a *attempt) detach() {
	if a.notes.Load()&waits != 0 {
		return
	}
	if a.res != nil && !a.hasNone() && a.body.err == nil {
		res := *a.res
		res.Trailer, res.Body = res.Trailer.Clone(), copied{res.Body, a.res}
		a.res = &res
	}
	if a.free(waits) && a == &a.primary {
		a.wait()
	}
}

// copied is the body of a copy, until the copy is delivered.
type copied struct {
	io.ReadCloser
	of *http.Response
}

// free adds waits or raced to the attempt's notes, and reports whether they have both. If so, free reads
// the response ahead: if the transport limits its connections, a hedge may wait for the attempt's.
func (a *attempt) free(note int32) (both bool) {
	was := a.notes.Or(note)
	if both = was|note == waits|raced; both && was != waits|raced && a.isCopied() {
		a.body.readAhead()
	}
	return both
}

func (a *attempt) isCopied() bool {
	if a.res == nil {
		return false
	}
	_, ok := a.res.Body.(copied)
	return ok
}

const (
	waits = 1 << iota // the attempt has ended, and the race may go on
	raced             // a hedge is sent
)

// send sends the request through rt and waits for the response. If package net/http cancels a loser
// as its response arrives, it may fail the next request on that connection, with the loser's cause. If
// again is set, send then sends its request again.
func (a *attempt) send(rt http.RoundTripper) {
	defer a.arrival.Or(returned)
	a.res, a.err = rt.RoundTrip(a.req)
	for errors.Is(a.err, rpc.ErrLost) && a.again && !a.made && a.req.Context().Err() == nil {
		a.setBody()
		a.res, a.err = rt.RoundTrip(a.req)
	}
	if a.res != nil {
		a.body.ReadCloser = a.res.Body
	}
	a.judge()
}

const (
	begun    = 1 << iota // the response begins to arrive
	returned             // RoundTrip of the transport has returned
)

func (a *attempt) responseBegins() { a.arrival.Or(begun) }

// lose cancels the attempt. If it is a loser and its response has begun to arrive, lose cancels it after
// arrives: package net/http may put the connection into the pool before it notices the end of the
// context, and would then fail the next request on it.
func (a *attempt) lose(cause error, cancel context.CancelCauseFunc) {
	if cause == rpc.ErrLost && a.arrival.Load() == begun {
		time.AfterFunc(arrives, func() { cancel(cause) })
		return
	}
	cancel(cause)
}

// arrives is the time that the headers of a response take once they have begun to arrive.
const arrives = time.Millisecond

// settle is called when the answer is known, and for a loser. The second call closes the response.
func (a *attempt) settle() {
	if a.settled.Swap(true) && a.body.ReadCloser != nil {
		a.body.Close()
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
	a.own()
	if a.err != nil || a.res == nil || a.hasNone() {
		a.cancel(nil)
	} else {
		from, _ := a.res.Body.(copied)
		a.res.Body = body{&a.body, a, a.call.Age(), from.of}
	}
	return a.res, a.err
}

func (a *attempt) Run(ctx *race.Context) race.End {
	if a.started.Swap(true) {
		return race.End{Err: context.Cause(ctx)}
	}
	a.req = a.req.WithContext(ctx)
	rpc.MarkHTTP(a.req.Header, ctx)
	return a.answer(a.transport.hedges)
}
