package hedgehttp

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/call"
)

func isNone(body io.ReadCloser) bool { return body == nil || body == http.NoBody }

// hasNone reports whether a response has no body, or one of another protocol.
func hasNone(req *http.Request, res *http.Response) bool {
	return isNone(res.Body) || req.Method == http.MethodHead || res.StatusCode == http.StatusSwitchingProtocols
}

// streams reports whether a response answers with the first byte of its body: a server flushes the
// headers of a stream before it has an answer. The events of a GET are a subscription, which may have
// none for long, and answers with its headers unless it is selected.
func (x *exchange) streams(req *http.Request, res *http.Response) bool {
	mediaType, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	switch strings.TrimSpace(mediaType) {
	case eventStream:
		if x.call.Named() || req.Method != "" && req.Method != http.MethodGet {
			return true
		}
	case "application/x-ndjson":
		return true
	}
	return x.firstByte != nil && x.firstByte(res)
}

const eventStream = "text/event-stream"

// body is the body of the winner's response.
type body struct {
	io.ReadCloser
	kept    []byte // its beginning, which was read before the race was decided
	closed  atomic.Bool
	release context.CancelCauseFunc // frees the attempt's context
}

func (b *body) Read(p []byte) (int, error) {
	if len(b.kept) > 0 && !b.closed.Load() {
		n := copy(p, b.kept)
		b.kept = b.kept[n:]
		return n, nil
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release(nil)
	}
	return n, err
}

func (b *body) Close() error {
	b.closed.Store(true)
	defer b.release(nil)
	return b.ReadCloser.Close()
}

// unhedgedBody is the body of an unhedged response whose beginning has the answer. If the caller
// closes the body before that, nothing is learned.
type unhedgedBody struct {
	io.ReadCloser
	*exchange
	res     *http.Response
	kept    []byte
	headers time.Duration // the age of the call when they came
	over    atomic.Bool   // the answer was read, or the body is closed
}

func (u *unhedgedBody) Read(p []byte) (int, error) {
	if u.over.Load() {
		return u.ReadCloser.Read(p)
	}
	asked := u.call.Age()
	n, err := u.ReadCloser.Read(p)
	if u.kept = append(u.kept, p[:min(n, maxKept)]...); u.over.Load() {
		return n, err
	}
	end, known := u.answerOf(u.caller, u.res, u.kept, err)
	if !known || u.over.Swap(true) {
		return n, err
	}
	if asked-u.headers <= call.Grace {
		asked = 0
	}
	u.call.End(call.Completion{AskedAt: asked, Err: end.err, Trailer: end.pushback})
	return n, err
}

func (u *unhedgedBody) Close() error {
	u.over.Store(true)
	return u.ReadCloser.Close()
}
