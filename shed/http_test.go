package shed_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// upgrade answers with a connection of its own, which echoes one line.
func upgrade(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	defer conn.Close()
	fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	rw.Flush()
	line, _ := rw.ReadString('\n')
	fmt.Fprint(rw, line)
	rw.Flush()
}

// TestHandler_OnTheWire serves requests by real servers: with the handler, a primary and a hedge are
// answered as by the plain server. A hedge no longer counts once it has a connection of its own.
func TestHandler_OnTheWire(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(path, []byte("<html>"+strings.Repeat("x", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		serve   http.HandlerFunc
		upgrade bool
	}{
		{name: "a file of no declared type", serve: func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(path)
			if err == nil {
				defer f.Close()
				_, err = io.Copy(w, f)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}},
		{name: "a reader that fails", serve: func(w http.ResponseWriter, _ *http.Request) {
			n, err := io.Copy(w, io.MultiReader(strings.NewReader("half"), failing{}))
			fmt.Fprint(w, n, err)
		}},
		{name: "a flush, a message and a trailer", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream") // otherwise a proxy detects it, or not, by chance
			w.Header().Set("Trailer", "Sum")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "message")
			w.(http.Flusher).Flush()
			w.Header().Set("Sum", "7")
		}},
		{name: "a connection of its own", serve: upgrade, upgrade: true},
	} {
		for _, h2 := range []bool{false, true} {
			if tc.upgrade && h2 {
				continue // clients refuse it
			}
			t.Run(fmt.Sprintf("%s, h2 %v", tc.name, h2), func(t *testing.T) {
				plain := ask(t, newServer(t, h2, tc.serve), false, tc.upgrade, nil)
				for _, hedge := range []bool{false, true} {
					b := newBound(t, 1)
					if got := ask(t, newServer(t, h2, b.Handler(tc.serve)), hedge, tc.upgrade, b.InFlight); got != plain {
						t.Errorf("hedge %v: the answer is\n%.300s\nwant\n%.300s", hedge, got, plain)
					}
				}
			})
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the reader fails") }

func newServer(t *testing.T, h2 bool, serve http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(serve)
	s.EnableHTTP2 = h2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ask returns the answer of the server: status, headers but Date, body and trailers.
func ask(t *testing.T, s *httptest.Server, hedge, upgrade bool, inFlight func() int) string {
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if hedge {
		req.Header = http.Header{"Hedge-Attempt": {"1"}, "Hedge-Primary-In-Flight": {"1"}}
	}
	if upgrade {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if up, ok := resp.Body.(io.Writer); ok {
		if inFlight != nil && inFlight() != 0 {
			t.Errorf("%d hedges are in flight after the upgrade, want none", inFlight())
		}
		fmt.Fprintln(up, "hello")
	}
	body, err := io.ReadAll(resp.Body)
	resp.Header.Del("Date")
	return fmt.Sprintf("%s %v %d\n%s %v %v", resp.Status, resp.Header, resp.ContentLength, body, err, resp.Trailer)
}
