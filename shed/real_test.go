package shed_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
