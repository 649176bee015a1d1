package hedgehttp

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/call"
)

// isStream reports whether a server flushes the headers of a response of the content type before it
// has an answer.
func isStream(contentType string) bool {
	mediaType, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	mediaType = strings.TrimSpace(mediaType)
	return mediaType == "text/event-stream" || mediaType == "application/x-ndjson" ||
		strings.HasPrefix(mediaType, "application/connect+")
}

// kept is the beginning of a body that was read before its race was decided.
type kept struct {
	data []byte
	err  error // of the read; the next one returns it
}

// readFirst reads the first bytes of a body. It returns an error if there are none, and not because
// the body is empty.
func (k *kept) readFirst(from io.Reader) error {
	k.data = make([]byte, 512)
	n := 0
	for n == 0 && k.err == nil {
		n, k.err = from.Read(k.data)
	}
	k.data = k.data[:n]
	if n > 0 || k.err == io.EOF {
		return nil
	}
	return k.err
}

// body is the body of the winner's response.
type body struct {
	io.ReadCloser
	kept
	release context.CancelCauseFunc // frees the attempt's context
}

func (b *body) Read(p []byte) (n int, err error) {
	if len(b.data) > 0 {
		n = copy(p, b.data)
		b.data = b.data[n:]
		return n, nil
	}
	if err = b.err; err == nil {
		n, err = b.ReadCloser.Read(p)
	}
	if err != nil {
		b.release(nil)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.release(nil)
	return err
}

// unheard is the body of a response that was not hedged, and answers with the first byte of its
// body.
type unheard struct {
	io.ReadCloser
	call    *call.Call
	headers time.Duration // the age of the call when they came
	heard   bool
}

func (u *unheard) Read(p []byte) (int, error) {
	if u.heard {
		return u.ReadCloser.Read(p)
	}
	askedAt := u.call.Age()
	n, err := u.ReadCloser.Read(p)
	if n > 0 || err != nil {
		u.heard = true
		end := call.Ending{AskedAt: askedAt}
		if askedAt-u.headers <= call.Grace {
			end.AskedAt = 0
		}
		if n == 0 && err != io.EOF {
			end.Err = outcomeOf(nil, err)
		}
		u.call.End(end)
	}
	return n, err
}
