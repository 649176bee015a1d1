package shed

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/felixge/httpsnoop"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Handler returns a handler for HTTP servers. It turns hedges of package hedgehttp away while the
// server is busy, with the status 429 and the header Hedge-Turned-Away: 1, on which the client sends
// the next hedge at once. A hedge has the headers Hedge-Attempt and Hedge-Primary-In-Flight. next
// gets every other request. A hedge counts until the first bytes of its body are written, ReadFrom
// begins to read them, its connection is hijacked, or next returns. Put the handler outermost, but
// inside one that limits requests by client.
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
			leave := sync.OnceFunc(func() { b.inFlight.Add(-1) })
			defer leave()
			w, r = asHedge(w, leave), r.WithContext(rpc.ServesHTTPHedge(r.Context()))
		}
		next.ServeHTTP(w, r)
	})
}

// asHedge returns w as the response of a hedge, with the optional methods that w has. leave is called once the
// hedge is no longer in flight.
func asHedge(w http.ResponseWriter, leave func()) http.ResponseWriter {
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(p []byte) (int, error) {
				defer leave()
				return write(p)
			}
		},
		WriteString: func(write httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				defer leave()
				return write(s)
			}
		},
		ReadFrom: func(readFrom httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(r io.Reader) (int64, error) {
				leave()
				return readFrom(r)
			}
		},
		Hijack: func(hijack httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := hijack()
				if err == nil {
					leave()
				}
				return conn, rw, err
			}
		},
	})
}
