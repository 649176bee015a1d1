package shed_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/shed"
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

// TestHandler_OnTheWire serves requests by real servers, also through a reverse proxy: with the
// handler, a primary and a hedge are answered as by the plain server. A hedge no longer counts once
// it has a part of its body, or a connection of its own.
func TestHandler_OnTheWire(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(path, []byte("<html>"+strings.Repeat("x", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	file := func(send func(http.ResponseWriter, *http.Request, *os.File) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			f, err := os.Open(path)
			if err == nil {
				defer f.Close()
				err = send(w, r, f)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	}
	for _, tc := range []struct {
		name, method string
		serve        http.HandlerFunc
		upgrade      bool
	}{
		{name: "103, and 103 again", serve: func(w http.ResponseWriter, _ *http.Request) {
			for _, link := range []string{"</a>", "</b>"} {
				w.Header().Set("Link", link)
				w.WriteHeader(http.StatusEarlyHints)
			}
			fmt.Fprint(w, "page")
		}},
		{name: "no body", serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }},
		{name: "HEAD", method: "HEAD", serve: func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }},
		{name: "a range of a file", serve: func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Range", "bytes=3-1000")
			http.ServeFile(w, r, path)
		}},
		{name: "a file of no declared type", serve: file(func(w http.ResponseWriter, _ *http.Request, f *os.File) error {
			_, err := io.Copy(w, f)
			return err
		})},
		{name: "ReadFrom, which HTTP/1 has", serve: file(func(w http.ResponseWriter, r *http.Request, f *os.File) error {
			from, ok := w.(io.ReaderFrom)
			if r.ProtoMajor == 1 && !ok {
				return errors.New("the response of HTTP/1 has no ReadFrom")
			} else if !ok {
				_, err := io.CopyN(w, f, 1000)
				return err
			}
			_, err := from.ReadFrom(io.LimitReader(f, 1000))
			return err
		})},
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
		{name: "deadlines", serve: func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			fmt.Fprint(w, c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}), c.EnableFullDuplex())
		}},
		{name: "a connection of its own", serve: upgrade, upgrade: true},
	} {
		for _, h2 := range []bool{false, true} {
			for _, proxied := range []bool{false, true} {
				if tc.upgrade && h2 {
					continue // clients refuse it
				}
				t.Run(fmt.Sprintf("%s, h2 %v, proxied %v", tc.name, h2, proxied), func(t *testing.T) {
					answer := func(b *shed.Bound, hedge bool) string {
						var inFlight func() int
						serve := http.Handler(tc.serve)
						if proxied {
							back := newServer(t, h2, serve)
							to, _ := url.Parse(back.URL)
							serve = &httputil.ReverseProxy{Transport: back.Client().Transport,
								Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
						}
						if b != nil {
							inFlight, serve = b.InFlight, b.Handler(serve)
						}
						return ask(t, newServer(t, h2, serve), tc.method, hedge, tc.upgrade, inFlight)
					}
					plain := answer(nil, false)
					for _, hedge := range []bool{false, true} {
						if got := answer(newBound(t, 1), hedge); got != plain {
							t.Errorf("hedge %v: the answer is\n%.300s\nwant\n%.300s", hedge, got, plain)
						}
					}
				})
			}
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errLost }

func newServer(t *testing.T, h2 bool, serve http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(serve)
	s.EnableHTTP2 = h2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ask returns the answer of the server: informational and final status, headers but Date, body and
// trailers.
func ask(t *testing.T, s *httptest.Server, method string, hedge, upgrade bool, inFlight func() int) string {
	var answer strings.Builder
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			fmt.Fprintln(&answer, code, h)
			return nil
		}})
	req, err := http.NewRequestWithContext(ctx, method, s.URL, nil)
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
	fmt.Fprintf(&answer, "%s %v %d\n%s %v %v", resp.Status, resp.Header, resp.ContentLength, body, err, resp.Trailer)
	return answer.String()
}
