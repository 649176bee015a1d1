package shed

import (
	"bufio"
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

// httpHedge is the response of a hedge that is in flight.
type httpHedge struct {
	http.ResponseWriter
	leave func()
}

func (h *httpHedge) Write(p []byte) (int, error) {
	defer h.leave()
	return h.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (h *httpHedge) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// FlushError is for [http.ResponseController].
func (h *httpHedge) FlushError() error { return http.NewResponseController(h.ResponseWriter).Flush() }

// CloseNotify implements http.CloseNotifier, which is deprecated, but which gin expects.
func (h *httpHedge) CloseNotify() <-chan bool {
	if server, ok := h.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return server.CloseNotify()
	}
	return make(chan bool)
}

// hijacker is the connection of a hedge, which is not in flight once the connection is hijacked.
type hijacker struct {
	http.Hijacker
	leave func()
}

// Hijack implements [http.Hijacker].
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.Hijacker.Hijack()
	if err == nil {
		h.leave()
	}
	return conn, rw, err
}

// asServed returns the response as a [http.Flusher] and a [http.Hijacker] if the server's is one: a
// handler that asks for one learns what its client's connection can do.
func (h *httpHedge) asServed() http.ResponseWriter {
	flush, flushes := h.ResponseWriter.(http.Flusher)
	conn, hijacks := h.ResponseWriter.(http.Hijacker)
	hijack := hijacker{conn, h.leave}
	switch {
	case flushes && hijacks:
		return struct {
			*httpHedge
			http.Flusher
			hijacker
		}{h, flush, hijack}
	case flushes:
		return struct {
			*httpHedge
			http.Flusher
		}{h, flush}
	case hijacks:
		return struct {
			*httpHedge
			hijacker
		}{h, hijack}
	}
	return h
}
