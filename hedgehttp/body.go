package hedgehttp

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
)

func isNone(body io.ReadCloser) bool { return body == nil || body == http.NoBody }

// early is a body that is read in part before its reader asks for it.
type early struct {
	io.ReadCloser
	at int // in kept: the bytes before it were returned by Read

	mu    sync.Mutex // guards the fields below, but closed, while a goroutine of readAhead runs
	kept  []byte     // the part that was read
	err   error      // of Read, which ended the body; a fall if Read panicked on a goroutine of readAhead
	more  *sync.Cond // signals changes of these fields, and of closed; nil before readAhead
	ahead bool       // a goroutine of readAhead runs

	closed atomic.Bool
}

// fall has the value of a panic, for the reader of kept.
type fall struct {
	error
	value any
}

// peek reads a little more. Only one goroutine at a time does.
func (e *early) peek() {
	kept := slices.Grow(e.kept, 512)
	n, err := e.ReadCloser.Read(kept[len(kept):cap(kept)])
	e.change(func() { e.kept, e.err = kept[:len(kept)+n], err })
}

// change runs f under the lock and wakes the goroutines that wait for a change.
func (e *early) change(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f(); e.more != nil {
		e.more.Broadcast()
	}
}

// readAll reads the rest of the body, until more than [race.MaxRequest] is kept.
func (e *early) readAll() {
	for e.err == nil && len(e.kept) <= race.MaxRequest {
		e.peek()
	}
}

// readAhead calls readAll on a goroutine of its own.
func (e *early) readAhead() {
	e.change(func() { e.ahead, e.more = true, sync.NewCond(&e.mu) })
	go func() {
		defer func() {
			value := recover()
			e.change(func() {
				if e.ahead = false; value != nil {
					e.err = fall{value: value}
				}
			})
		}()
		e.readAll()
	}()
}

// wait waits until readAll has ended, or until the body is closed: closing may not end a Read in progress.
func (e *early) wait() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.ahead && !e.closed.Load() {
		e.more.Wait()
	}
}

// Read returns the kept part, and then the rest.
func (e *early) Read(p []byte) (n int, err error) {
	e.mu.Lock()
	for e.ahead && (e.at == len(e.kept) || e.closed.Load()) {
		e.more.Wait()
	}
	if e.at == len(e.kept) {
		err = e.err
	}
	rest := e.closed.Load() || e.at == len(e.kept) && err == nil
	n = copy(p, e.kept[e.at:])
	e.at += n
	e.mu.Unlock()
	if rest {
		return e.ReadCloser.Read(p)
	}
	if fell, ok := err.(fall); ok {
		panic(fell.value)
	}
	return n, err
}

func (e *early) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	e.change(func() {})
	return e.ReadCloser.Close()
}

// readUpload reads the body of the caller's request, so that each attempt can send it, and returns the
// request to send. A request that can be sent only once is not hedged. A body without GetBody and of
// unknown length is not read, because the caller may write it while it reads the response. The call
// begins when the body has been read: its latency is the server's, without the upload.
func (x *exchange) readUpload() *http.Request {
	req := x.caller
	switch {
	case req.Method == http.MethodConnect || req.Header.Get("Upgrade") != "" || req.Header.Get("Expect") != "":
	case isNone(req.Body):
		return req
	case !x.call.Hedged && !x.may.Idempotent && !x.call.Named(): // while hedging is off or paused
	case req.ContentLength > race.MaxRequest || req.GetBody == nil && req.ContentLength <= 0:
	default:
		ctx, body := req.Context(), &early{ReadCloser: req.Body}
		stop := context.AfterFunc(ctx, func() { body.Close() })
		if req.GetBody != nil {
			body.readAll()
		} else { // Close may not end a Read of this body
			body.readAhead()
			body.wait()
		}
		x.call.Start = time.Now()
		if stop() && body.err == io.EOF && len(body.kept) <= race.MaxRequest {
			body.Close()
			x.upload = body
			return req
		}
		req = req.WithContext(ctx)
		req.Body = body
	}
	x.call.NotReplayable()
	x.call.Learns = isNone(req.Body) // otherwise the latency includes the upload
	return req
}

// setBody gives the request the body that was read ahead.
func (a *attempt) setBody() {
	if a.upload != nil {
		a.req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(a.upload.kept)), nil }
		a.req.Body, _ = a.req.GetBody()
	}
}

// hasNone reports whether the response has no body, or one of another protocol. Over HTTP/2 the body of
// a response that ended with its headers is an empty struct; otherwise trailers may follow, also after a
// body of length 0.
func (a *attempt) hasNone() bool {
	return isNone(a.res.Body) || a.req.Method == http.MethodHead || a.res.StatusCode == http.StatusSwitchingProtocols ||
		a.res.ProtoMajor > 1 && reflect.TypeOf(a.res.Body).Size() == 0
}

// body is the body of the winner's response, or of an unhedged response whose body begins with the
// answer. If the caller closes the body before the answer, the latency is not learned.
type body struct {
	*early
	of      *attempt
	headers time.Duration  // the age of the call when the headers came
	from    *http.Response // the transport's, in which it sets the trailers, if the response is a copy
}

func (b body) Read(p []byte) (n int, err error) {
	a := b.of
	for !a.known && b.at == len(b.kept) && len(p) > 0 && !b.closed.Load() {
		asked := a.call.Age()
		if asked-b.headers <= call.Grace {
			asked = 0
		}
		b.peek()
		if a.judge(); a.known && !b.closed.Load() {
			a.call.End(call.Completion{AskedAt: asked, Err: a.end.err, Trailer: a.end.pushback})
		}
	}
	if n, err = b.early.Read(p); err != nil {
		a.cancel(nil)
	}
	if err == io.EOF && b.from != nil && len(b.from.Trailer) > 0 {
		if a.res.Trailer == nil {
			a.res.Trailer = http.Header{}
		}
		maps.Copy(a.res.Trailer, b.from.Trailer)
	}
	return n, err
}

func (b body) Close() error {
	defer b.of.cancel(nil)
	return b.early.Close()
}
