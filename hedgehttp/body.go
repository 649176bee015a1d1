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

// streams reports whether a response answers with the first byte of its body: a server flushes the
// headers of a stream before it has an answer.
func (t *transport) streams(res *http.Response) bool {
	if res.Body == nil || res.Body == http.NoBody || res.StatusCode == http.StatusSwitchingProtocols {
		return false
	}
	mediaType, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	switch mediaType = strings.TrimSpace(mediaType); mediaType {
	case "text/event-stream", "application/x-ndjson":
		return true
	}
	return strings.HasPrefix(mediaType, "application/connect+") || t.firstByte != nil && t.firstByte(res)
}

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

// unhedgedBody is the body of an unhedged response that answers with its first byte. If the caller
// closes the body before that, nothing is learned.
type unhedgedBody struct {
	io.ReadCloser
	call    *call.Call
	headers time.Duration // the age of the call when they came
	over    atomic.Bool   // the first byte was read, or the body is closed
}

func (u *unhedgedBody) Read(p []byte) (int, error) {
	if u.over.Load() {
		return u.ReadCloser.Read(p)
	}
	end := call.Completion{AskedAt: u.call.Age()}
	n, err := u.ReadCloser.Read(p)
	if n == 0 && err == nil || u.over.Swap(true) {
		return n, err
	}
	if end.AskedAt-u.headers <= call.Grace {
		end.AskedAt = 0
	}
	if n == 0 && err != io.EOF {
		end.Err = outcomeOf(nil, err)
	}
	u.call.End(end)
	return n, err
}

func (u *unhedgedBody) Close() error {
	u.over.Store(true)
	return u.ReadCloser.Close()
}
