package hedgehttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
)

// exchange is the race for one request. It implements [race.Entrant].
type exchange struct {
	*transport
	caller  *http.Request
	body    []byte // of the request; nil: none
	race    race.Race
	call    call.Call
	primary attempt
	hedges  []*attempt
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil || req.Header == nil { // base returns an error
		return t.base.RoundTrip(req)
	}
	x := &exchange{transport: t, caller: req}
	target := req.URL.Scheme + "://" + req.URL.Host
	x.call = call.Begin(t.registry, req.Context(), target, t.nameOf(req), nil, kindOf(req))
	x.call.Inspect(req, nil, nil)
	if !x.call.Hedged() {
		return x.once(req)
	}
	if once := x.readAhead(); once != nil {
		x.call.NotReplayable()
		return x.once(once)
	}

	x.primary = attempt{exchange: x}
	x.primary.ctx, x.primary.cancel = context.WithCancelCause(req.Context())
	var winner *attempt
	defer func() { // also if an attempt panics
		if winner != &x.primary {
			x.primary.drop()
		}
		for _, h := range x.hedges {
			if h != winner {
				h.drop()
			}
		}
	}()
	out := x.race.Run(req.Context(), x.primary.cancel, x.call.Plan(), &x.call, x)
	winner = &x.primary
	if out.Winner != nil {
		winner = out.Winner.(*attempt)
	}
	if out.Untouched {
		x.call.End(call.Ending{Err: out.Err, Trailer: winner.Trailer()})
	}
	return winner.deliver()
}

// once sends an unhedged request, and learns its latency. A streamed response is returned with its
// headers; its latency is learned when the caller has read the first byte.
func (x *exchange) once(req *http.Request) (*http.Response, error) {
	a := attempt{exchange: x}
	a.res, a.err = x.base.RoundTrip(req)
	outcome := outcomeOf(a.res, a.err)
	if outcome == nil && x.call.Learns && x.streams(a.res) {
		a.res.Body = &unheard{ReadCloser: a.res.Body, call: &x.call, headers: x.call.Age()}
	} else {
		x.call.End(call.Ending{Err: outcome, Trailer: pushback(a.res, outcome)})
	}
	return a.res, a.err
}

// maxBody is the size of the largest request body that is kept for hedges.
const maxBody = 1 << 20

// readAhead reads the body of the request, so that each attempt can send it. If the request can be
// sent only once, readAhead returns the request to send. A body without GetBody and of unknown
// length is not read, because the caller may write it while it reads the response.
func (x *exchange) readAhead() (once *http.Request) {
	req := x.caller
	switch {
	case req.Method == http.MethodConnect || req.Header.Get("Upgrade") != "" || req.Header.Get("Expect") != "":
		return req
	case req.Body == nil || req.Body == http.NoBody:
		return nil
	case req.ContentLength > maxBody || req.GetBody == nil && req.ContentLength <= 0:
		return req
	}
	var read bytes.Buffer
	read.Grow(int(req.ContentLength) + bytes.MinRead)
	stop := context.AfterFunc(req.Context(), func() { req.Body.Close() })
	_, err := read.ReadFrom(io.LimitReader(req.Body, maxBody+1))
	if stop() && err == nil && read.Len() <= maxBody {
		req.Body.Close()
		x.body = read.Bytes()
		return nil
	}
	rest := io.Reader(req.Body)
	if err != nil {
		rest = failingReader{err}
	}
	once = req.WithContext(req.Context())
	once.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&read, rest), req.Body}
	return once
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// streams reports whether a response answers with the first byte of its body.
func (t *transport) streams(res *http.Response) bool {
	if res.Body == nil || res.Body == http.NoBody || res.StatusCode == http.StatusSwitchingProtocols {
		return false
	}
	return isStream(res.Header.Get("Content-Type")) || t.firstByte != nil && t.firstByte(res)
}

func (x *exchange) Primary() error {
	// The base may break the contract and write to the headers.
	return x.primary.send(x.caller.Clone(x.primary.ctx), x.base)
}

func (x *exchange) Replayable() bool { return true }

func (x *exchange) Hedge(n int, _ context.CancelCauseFunc) race.Attempt {
	h := &attempt{exchange: x, n: n}
	h.ctx, h.cancel = context.WithCancelCause(x.caller.Context())
	h.req = x.caller.Clone(h.ctx)
	x.hedges = append(x.hedges, h)
	return h
}

func (x *exchange) Accepts(err error) (ok, open bool) { return x.primary.Accepts(err) }

func (x *exchange) Trailer() metadata.MD { return x.primary.Trailer() }

// attempt is one attempt of a request. A hedge implements [race.Attempt]; the exchange is the
// [race.Ending] of the primary.
type attempt struct {
	*exchange
	n      int // 0 is the primary
	ctx    context.Context
	cancel context.CancelCauseFunc
	req    *http.Request // of a hedge: a copy, as the caller may have its request back

	res     *http.Response
	err     error       // of the transport
	outcome error       // as the race sees it
	kept    kept        // of the body, of a response that answers with its first byte
	settled atomic.Bool // send has returned, or drop was called; the second of them closes the body
}

// send sends the request by rt and waits for the answer.
func (a *attempt) send(req *http.Request, rt http.RoundTripper) error {
	if a.body != nil {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(a.body)), nil }
		req.Body, _ = req.GetBody()
	}
	if a.res, a.err = rt.RoundTrip(req); a.res != nil && a.res.Request == req {
		a.res.Request = a.caller
	}
	a.outcome = outcomeOf(a.res, a.err)
	if a.outcome == nil && a.streams(a.res) {
		a.outcome = outcomeOf(a.res, a.kept.readFirst(a.res.Body))
	}
	if a.settled.Swap(true) {
		a.close()
	}
	return a.outcome
}

// drop ends a loser, which may still be running.
func (a *attempt) drop() {
	a.cancel(rpc.ErrLost)
	if a.settled.Swap(true) {
		a.close()
	}
}

func (a *attempt) close() {
	if a.res != nil && a.res.Body != nil {
		a.res.Body.Close()
	}
}

// deliver returns the winner's response. The attempt's context ends when the body has been read or
// closed.
func (a *attempt) deliver() (*http.Response, error) {
	switch {
	case a.err != nil || a.res == nil || a.res.Body == nil || a.res.Body == http.NoBody:
		a.cancel(nil)
	case a.res.StatusCode != http.StatusSwitchingProtocols: // otherwise the body is a connection
		a.res.Body = &body{ReadCloser: a.res.Body, kept: a.kept, release: a.cancel}
	}
	return a.res, a.err
}

// Run sends a hedge. The attempt has its own context, because its response may be delivered, and
// read, after the race has ended ctx.
func (a *attempt) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { a.cancel(rpc.ErrLost) })
	defer stop()
	return a.send(a.req.WithContext(hedgeContext{a.ctx, ctx}), a.transport.hedges)
}

func (a *attempt) Accepts(err error) (ok, open bool) { return a.call.Accepts(a.res, err), false }

// Served implements [race.Attempt].
func (a *attempt) Served() bool { return a.err == nil && a.res != nil }

func (a *attempt) Trailer() metadata.MD { return pushback(a.res, a.outcome) }

// hedgeContext is the context of a hedge, with the values of the caller's context and of the
// race's, but without the caller's hooks.
type hedgeContext struct {
	context.Context
	race context.Context
}

func (c hedgeContext) Value(key any) any {
	if v := noHooks.Value(key); v != nil {
		return v
	}
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.race.Value(key)
}

// noHooks has no-op hooks, under the keys of package httptrace and of package net.
var noHooks = httptrace.WithClientTrace(context.Background(),
	&httptrace.ClientTrace{DNSStart: func(httptrace.DNSStartInfo) {}})
