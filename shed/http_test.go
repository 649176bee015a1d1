package shed_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
)

// TestHandler turns away hedges with a primary in flight, and no other request. A hedge leaves with
// the first byte of its body.
func TestHandler(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name       string
		header     []string
		value      string // of the header; empty: 1
		ctx        context.Context
		most       int // hedges in flight
		status     int
		turnedAway string
		served     bool
	}{
		{name: "a hedge without room", header: []string{"Hedge-Attempt", "Hedge-Primary-In-Flight"}, status: 429,
			turnedAway: "1"},
		{name: "a hedge with room", header: []string{"Hedge-Attempt", "Hedge-Primary-In-Flight"}, most: 1, status: 200,
			served: true},
		{name: "a hedge whose primary has failed", header: []string{"Hedge-Attempt"}, status: 200, served: true},
		{name: "a primary", status: 200, served: true},
		{name: "a primary of a proxy that sets both to 0", header: []string{"Hedge-Attempt", "Hedge-Primary-In-Flight"},
			value: "0", status: 200, served: true},
		{name: "a primary of a proxy that sets both to nothing", header: []string{"Hedge-Attempt", "Hedge-Primary-In-Flight"},
			value: " ", status: 200, served: true},
		{name: "a primary whose context has ended", ctx: gone, status: 503},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, served := newBound(t, tc.most), false
			handler := b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.(http.Flusher).Flush()
				before := b.InFlight()
				_, _ = io.WriteString(w, "first byte")
				if served = true; before != tc.most || b.InFlight() != 0 {
					t.Errorf("%d hedges are in flight, and then %d; want %d and 0", before, b.InFlight(), tc.most)
				}
			}))
			req := httptest.NewRequest("GET", "/", nil)
			if tc.ctx != nil {
				req = req.WithContext(tc.ctx)
			}
			for _, h := range tc.header {
				req.Header.Set(h, strings.TrimSpace(cmp.Or(tc.value, "1")))
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, req)
			if answer.Code != tc.status || answer.Header().Get("Hedge-Turned-Away") != tc.turnedAway || served != tc.served {
				t.Errorf("status %d, headers %v, served %v; want %+v", answer.Code, answer.Header(), served, tc)
			}
		})
	}
}

// broken is a response whose connection is lost.
type broken struct{ http.ResponseWriter }

var errLost = errors.New("the connection is lost")

func (broken) FlushError() error                            { return errLost }
func (broken) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errLost }

// TestHandler_AHedgeAsAnyOther: the handler of a hedge can flush and hijack its response, and its context has the
// caller's metadata.
func TestHandler_AHedgeAsAnyOther(t *testing.T) {
	for name, header := range map[string]http.Header{"a primary": {},
		"a hedge": {"Hedge-Attempt": {"1"}, "Hedge-Primary-In-Flight": {"1"}}} {
		t.Run(name, func(t *testing.T) {
			served := false
			handler := newBound(t, 1).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served = true
				_, _, hijacked := w.(http.Hijacker).Hijack()
				if err := http.NewResponseController(w).Flush(); err != errLost || hijacked != errLost {
					t.Errorf("Flush returns %v and Hijack %v, want the errors of the connection", err, hijacked)
				}
				if tenant := metadata.ValueFromIncomingContext(r.Context(), "tenant"); len(tenant) != 1 {
					t.Errorf("the metadata tenant is %q, want one value", tenant)
				}
			}))
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("tenant", "blue"))
			req := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
			req.Header = header
			if handler.ServeHTTP(broken{httptest.NewRecorder()}, req); !served {
				t.Error("the request was not served")
			}
		})
	}
}

// TestHandler_OptionalMethods: a handler that serves a hedge finds the methods that the server's response has for
// a primary, and no other.
func TestHandler_OptionalMethods(t *testing.T) {
	serve := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		pusher, pushes := w.(http.Pusher)
		_, notifies := w.(interface{ CloseNotify() <-chan bool })
		_, writesStrings := w.(io.StringWriter)
		_, readsFrom := w.(io.ReaderFrom)
		pushed := error(nil)
		if pushes {
			pushed = pusher.Push("/pushed", nil)
		}
		first, err := io.WriteString(w, "")
		flushed := http.NewResponseController(w).Flush()
		_, _ = fmt.Fprint(w, flushes, hijacks, pushes, notifies, writesStrings, readsFrom, pushed, first, err, flushed)
	})
	within := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Minute, "late") }
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"alone":                    func(next http.Handler) http.Handler { return next },
		"a TimeoutHandler outside": within,
		"a writer with no method": func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
			})
		},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, h2 %v", name, h2), func(t *testing.T) {
				s := newServer(t, h2, wrap(newBound(t, 1).Handler(serve)))
				want := ask(t, s, "GET", false, false, nil)
				if got := ask(t, s, "GET", true, false, nil); got != want {
					t.Errorf("the methods of a hedge's response are\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}
