package hedgehttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/call"
)

func isNone(body io.ReadCloser) bool { return body == nil || body == http.NoBody }

// maxBody is the size of the largest request body that is kept for hedges.
const maxBody = 1 << 20

// readAhead reads the body of the caller's request, so that each attempt can send it, and returns the
// request to send. A request that can be sent only once is not hedged. A body without GetBody and of
// unknown length is not read, because the caller may write it while it reads the response. The call
// begins when the body has been read: its latency is the server's, without the upload.
func (x *exchange) readAhead() *http.Request {
	req := x.caller
	switch {
	case req.Method == http.MethodConnect || req.Header.Get("Upgrade") != "" || req.Header.Get("Expect") != "":
	case isNone(req.Body):
		return req
	case req.ContentLength > maxBody || req.GetBody == nil && req.ContentLength <= 0:
	default:
		closeBody := closer(sync.OnceValue(req.Body.Close))
		stop := context.AfterFunc(req.Context(), func() { closeBody() })
		read, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
		x.call.Start = time.Now()
		if stop() && err == nil && len(read) <= maxBody {
			closeBody()
			x.upload = read
			return req
		}
		rest := io.Reader(req.Body)
		if err != nil {
			failed, w := io.Pipe()
			w.CloseWithError(err)
			rest = failed
		}
		req = req.WithContext(req.Context())
		req.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(read), rest), closeBody}
	}
	x.call.NotReplayable()
	x.call.Learns = isNone(req.Body) // otherwise the latency includes the upload
	return req
}

type closer func() error

func (c closer) Close() error { return c() }

// setBody gives the request the body that was read ahead.
func (a *attempt) setBody() {
	if a.upload != nil {
		a.req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(a.upload)), nil }
		a.req.Body, _ = a.req.GetBody()
	}
}

// body is the body of the winner's response, or of an unhedged one whose beginning has the answer.
// If the caller closes the latter before the answer, nothing is learned.
type body struct {
	io.ReadCloser
	of     *attempt
	at     int // in the beginning
	closed atomic.Bool
}

func (b *body) Read(p []byte) (n int, err error) {
	a := b.of
	for !a.known && b.at == len(a.kept) && len(p) > 0 && !b.closed.Load() {
		asked := a.call.Age()
		if asked-a.headers <= call.Grace {
			asked = 0
		}
		if a.peek(b.ReadCloser); a.known && !b.closed.Load() {
			a.call.End(call.Completion{AskedAt: asked, Err: a.end.err, Trailer: a.end.pushback})
		}
	}
	if b.at < len(a.kept) && !b.closed.Load() {
		n = copy(p, a.kept[b.at:])
		b.at += n
		return n, nil
	}
	if n, err = b.ReadCloser.Read(p); err != nil {
		a.cancel(nil)
	}
	return n, err
}

func (b *body) Close() error {
	b.closed.Store(true)
	defer b.of.cancel(nil)
	return b.ReadCloser.Close()
}

// peek reads a part of the beginning of a response's body, in which the answer may be.
func (a *attempt) peek(from io.Reader) {
	a.kept = slices.Grow(a.kept, 512)
	n, err := from.Read(a.kept[len(a.kept):cap(a.kept)])
	a.kept = a.kept[:len(a.kept)+n]
	a.judge(err)
}
