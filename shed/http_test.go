package shed_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
)

// TestHandler turns away hedges with a primary in flight, and no other request. A hedge leaves with
// the first byte of its body. Its context has the caller's metadata.
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
				if tenant := metadata.ValueFromIncomingContext(r.Context(), "tenant"); len(tenant) != 1 {
					t.Errorf("the metadata tenant is %q, want one value", tenant)
				}
				before := b.InFlight()
				_, _ = io.WriteString(w, "first byte")
				if served = true; before != tc.most || b.InFlight() != 0 {
					t.Errorf("%d hedges are in flight, and then %d; want %d and 0", before, b.InFlight(), tc.most)
				}
			}))
			ctx := metadata.NewIncomingContext(cmp.Or(tc.ctx, t.Context()), metadata.Pairs("tenant", "blue"))
			req := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
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
				want := ask(t, s, false, false, nil)
				if got := ask(t, s, true, false, nil); got != want {
					t.Errorf("the methods of a hedge's response are\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}
