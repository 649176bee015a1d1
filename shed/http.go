package shed

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Handler returns a handler for HTTP servers. It turns hedges of package hedgehttp away while the
// server is busy, with the status 429 and the header Hedge-Turned-Away: 1, on which the client sends
// the next hedge at once. A hedge has the headers Hedge-Attempt and Hedge-Primary-In-Flight. next
// gets every other request. A hedge counts until the first bytes of its body are written, its
// connection is hijacked, or next returns. Put the handler outermost, but inside one that limits
// requests by client.
func (b *Bound) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.Context().Err(); err != nil {
			http.Error(w, "hedge: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		spare := rpc.PrimaryInFlightHTTP(r.Header)
		if spare && !b.enter() {
			w.Header().Set(rpc.TurnedAwayHeader, "1")
			w.Header().Set("Cache-Control", "no-store")
			http.Error(w, status.Convert(errShed).Message(), http.StatusTooManyRequests)
			return
		}
		defer b.handlerReturned()
		if spare {
			h := &httpHedge{ResponseWriter: w, leave: sync.OnceFunc(func() { b.inFlight.Add(-1) })}
			defer h.leave()
			w, r = h.asServed(), r.WithContext(rpc.ServesHTTPHedge(r.Context()))
		}
		next.ServeHTTP(w, r)
	})
}

// httpHedge is the response of a hedge that is in flight. Its own methods change nothing for a handler
// that calls them by package io or by [http.ResponseController]; asServed adds the server's.
type httpHedge struct {
	http.ResponseWriter
	leave func()
}

func (h *httpHedge) Write(p []byte) (int, error) {
	defer h.leave()
	return h.ResponseWriter.Write(p)
}

// WriteString implements [io.StringWriter].
func (h *httpHedge) WriteString(s string) (int, error) {
	defer h.leave()
	return io.WriteString(h.ResponseWriter, s)
}

// ReadFrom implements [io.ReaderFrom], as responses of HTTP/1 do, which send files without a copy.
func (h *httpHedge) ReadFrom(r io.Reader) (int64, error) {
	begun, err := io.CopyN(struct{ io.Writer }{h}, r, sniffed)
	if err == io.EOF {
		return begun, nil
	} else if err != nil {
		return begun, err
	}
	rest, err := io.Copy(h.ResponseWriter, r)
	return begun + rest, err
}

// sniffed is the most of a body that [http.DetectContentType] reads.
const sniffed = 512

// Unwrap is for [http.ResponseController].
func (h *httpHedge) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Optional methods of a server's response. A handler that asks for one learns what its client's
// connection can do.
type (
	flusher struct {
		http.Flusher
		of http.ResponseWriter
	}
	hijacker struct {
		http.Hijacker
		leave func()
	}
	notifier interface{ CloseNotify() <-chan bool }
)

// FlushError is for [http.ResponseController].
func (f flusher) FlushError() error { return http.NewResponseController(f.of).Flush() }

// Hijack implements [http.Hijacker].
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.Hijacker.Hijack()
	if err == nil {
		h.leave()
	}
	return conn, rw, err
}

// asServed returns the response with the optional methods that the server's has.
func (h *httpHedge) asServed() http.ResponseWriter {
	const flushes, hijacks, pushes, notifies = 1, 2, 4, 8
	can := 0
	has := func(ok bool, bit int) {
		if ok {
			can |= bit
		}
	}
	f, ok := h.ResponseWriter.(http.Flusher)
	has(ok, flushes)
	c, ok := h.ResponseWriter.(http.Hijacker)
	has(ok, hijacks)
	push, ok := h.ResponseWriter.(http.Pusher)
	has(ok, pushes)
	gone, ok := h.ResponseWriter.(notifier)
	has(ok, notifies)
	flush, hijack := flusher{f, h.ResponseWriter}, hijacker{c, h.leave}
	switch can {
	case flushes:
		return struct {
			*httpHedge
			flusher
		}{h, flush}
	case hijacks:
		return struct {
			*httpHedge
			hijacker
		}{h, hijack}
	case flushes | hijacks:
		return struct {
			*httpHedge
			flusher
			hijacker
		}{h, flush, hijack}
	case pushes:
		return struct {
			*httpHedge
			http.Pusher
		}{h, push}
	case flushes | pushes:
		return struct {
			*httpHedge
			flusher
			http.Pusher
		}{h, flush, push}
	case hijacks | pushes:
		return struct {
			*httpHedge
			hijacker
			http.Pusher
		}{h, hijack, push}
	case flushes | hijacks | pushes:
		return struct {
			*httpHedge
			flusher
			hijacker
			http.Pusher
		}{h, flush, hijack, push}
	case notifies:
		return struct {
			*httpHedge
			notifier
		}{h, gone}
	case flushes | notifies:
		return struct {
			*httpHedge
			flusher
			notifier
		}{h, flush, gone}
	case hijacks | notifies:
		return struct {
			*httpHedge
			hijacker
			notifier
		}{h, hijack, gone}
	case flushes | hijacks | notifies:
		return struct {
			*httpHedge
			flusher
			hijacker
			notifier
		}{h, flush, hijack, gone}
	case pushes | notifies:
		return struct {
			*httpHedge
			http.Pusher
			notifier
		}{h, push, gone}
	case flushes | pushes | notifies:
		return struct {
			*httpHedge
			flusher
			http.Pusher
			notifier
		}{h, flush, push, gone}
	case hijacks | pushes | notifies:
		return struct {
			*httpHedge
			hijacker
			http.Pusher
			notifier
		}{h, hijack, push, gone}
	case flushes | hijacks | pushes | notifies:
		return struct {
			*httpHedge
			flusher
			hijacker
			http.Pusher
			notifier
		}{h, flush, hijack, push, gone}
	}
	return h
}
