package hedgehttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// server answers by a handler, over HTTP/1.1 or HTTP/2. If it hangs, the first attempt of each path
// gets no answer.
type server struct {
	*httptest.Server
	base *http.Transport
	seen sync.Map // path → *atomic.Int64: attempts
}

func newServer(t testing.TB, h2, hangs bool, handler http.HandlerFunc) *server {
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.attempts(r.URL.Path).Add(1) == 1 && hangs && r.Header.Get("Once") == "" {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		handler(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if h2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	s.base = s.Client().Transport.(*http.Transport)
	t.Cleanup(func() {
		s.base.CloseIdleConnections()
		s.Close()
	})
	return s
}

func (s *server) attempts(path string) *atomic.Int64 {
	n, _ := s.seen.LoadOrStore(path, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// request makes a request that may be hedged, whatever its method.
func (s *server) request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, body)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Idempotency-Key", "key")
	return req
}

func read(res *http.Response, err error) string {
	if err != nil {
		return "error: " + cause(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if len(all) > 100 {
		all = fmt.Appendf(nil, "%d bytes, %x", len(all), sha256.Sum256(all))
	}
	return fmt.Sprintf("%d %q %s, length %d, trailer %v", res.StatusCode, all, cause(err), res.ContentLength,
		res.Trailer)
}

// cause is an error without the addresses in it.
func cause(err error) string {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return regexp.MustCompile(`[\d.]+:\d+`).ReplaceAllString(fmt.Sprint(err), "address")
}

// large is 100 MB, or a tenth of it in the short tier.
var large = sync.OnceValue(func() []byte {
	return bytes.Repeat([]byte("0123456789"), longtest.Size(1<<20, 10<<20))
})

// control has what plain net/http and hedging must do alike.
var control = []struct {
	name   string
	once   bool // the request must be sent once
	serve  http.HandlerFunc
	client func(t *testing.T, s *server, c *http.Client) string
}{
	{name: "GET", serve: hello, client: get},
	{name: "HEAD", serve: hello,
		client: func(t *testing.T, s *server, c *http.Client) string { return read(c.Head(s.URL)) }},
	{name: "404", serve: http.NotFound, client: get},
	{name: "503",
		serve: func(w http.ResponseWriter, r *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) },
		client: func(t *testing.T, s *server, c *http.Client) string {
			req := s.request(t.Context(), "GET", "/", nil)
			req.Header.Set("Once", "1") // a hedge that fails does not end the race
			return read(c.Do(req))
		}},
	{name: "204", serve: func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }, client: get},
	{name: "events", serve: events, client: get},
	{name: "no events",
		serve:  func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Type", "text/event-stream") },
		client: get},
	{name: "POST", serve: echo, client: func(t *testing.T, s *server, c *http.Client) string {
		return read(c.Do(s.request(t.Context(), "POST", "/", strings.NewReader("a body"))))
	}},
	{name: "POST without GetBody", serve: echo, client: func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), "POST", "/", strings.NewReader("a body"))
		req.GetBody = nil
		return read(c.Do(req))
	}},
	{name: "POST http.NoBody", serve: echo, client: func(t *testing.T, s *server, c *http.Client) string {
		return read(c.Do(s.request(t.Context(), "POST", "/", http.NoBody)))
	}},
	{name: "a negative ContentLength", serve: echo, client: func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), "POST", "/", strings.NewReader("a body"))
		req.ContentLength = -1000
		return read(c.Do(req))
	}},
	{name: "POST of a pipe", once: true, serve: echo, client: func(t *testing.T, s *server, c *http.Client) string {
		r, w := io.Pipe()
		go func() {
			io.WriteString(w, "written ")
			io.WriteString(w, "piecemeal")
			w.Close()
		}()
		return read(c.Do(s.request(t.Context(), "POST", "/", r)))
	}},
	{name: "a body that fails", once: true, serve: echo, client: func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), "POST", "/", io.MultiReader(strings.NewReader("half"), failing{}))
		req.ContentLength = 8
		return read(c.Do(req))
	}},
	{name: "a body shorter than its Content-Length", serve: echo,
		client: func(t *testing.T, s *server, c *http.Client) string {
			req := s.request(t.Context(), "POST", "/", strings.NewReader("short"))
			req.ContentLength = 10
			req.Header.Set("Once", "1")
			_, err := c.Do(req)
			return cause(err)
		}},
	{name: "a large body there", once: true, serve: func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v", n, h.Sum(nil), err)
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		return read(c.Do(s.request(t.Context(), "POST", "/", bytes.NewReader(large()))))
	}},
	{name: "2 MB of unknown length", once: true, serve: echo,
		client: func(t *testing.T, s *server, c *http.Client) string {
			req := s.request(t.Context(), "POST", "/", bytes.NewReader(large()[:2<<20]))
			req.ContentLength = -1
			return read(c.Do(req))
		}},
	{name: "a large body back", serve: func(w http.ResponseWriter, r *http.Request) { w.Write(large()) }, client: get},
	{name: "trailers", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		io.WriteString(w, "body")
		w.Header().Set("Sum", "17")
	}, client: get},
	{name: "Content-Length mismatch", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "too short")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		res, err := c.Get(s.URL)
		if err != nil {
			return cause(err)
		}
		defer res.Body.Close()
		_, err = io.ReadAll(res.Body)
		return fmt.Sprint(res.ContentLength, err != nil)
	}},
	{name: "gzip", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, "zipped")
		z.Close()
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		res, err := c.Get(s.URL)
		return fmt.Sprint(read(res, err), res.Uncompressed, res.Header)[:60]
	}},
	{name: "gzip that the client asks for", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream")
		z := gzip.NewWriter(w)
		io.WriteString(z, "zipped")
		z.Close()
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), "GET", "/", nil)
		req.Header.Set("Accept-Encoding", "gzip")
		return read(c.Do(req))
	}},
	{name: "HEAD of a stream with a Content-Length", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Length", "12345")
	}, client: func(t *testing.T, s *server, c *http.Client) string { return read(c.Head(s.URL)) }},
	{name: "early hints", serve: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		hello(w, r)
	}, client: get},
	{name: "trailers of a request", serve: func(w http.ResponseWriter, r *http.Request) {
		all, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v", all, r.Trailer)
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), "POST", "/", strings.NewReader("a body"))
		req.ContentLength, req.Trailer = -1, http.Header{"Sum": {"17"}}
		return read(c.Do(req))
	}},
	{name: "a body that is read late", serve: events, client: func(t *testing.T, s *server, c *http.Client) string {
		res, err := c.Get(s.URL)
		for range 20 { // and other requests
			get(t, s, c)
		}
		return read(res, err)
	}},
	{name: "a body that is closed early", serve: endless, client: func(t *testing.T, s *server, c *http.Client) string {
		res, err := c.Get(s.URL)
		if err != nil {
			return cause(err)
		}
		n, err := io.ReadFull(res.Body, make([]byte, 10))
		again := res.Body.Close()
		more, closed := res.Body.Read(make([]byte, 1))
		return fmt.Sprint(n, err, again, more, closed)
	}},
	{name: "a body that is read and closed at once", serve: endless,
		client: func(t *testing.T, s *server, c *http.Client) string {
			res, err := c.Get(s.URL)
			if err != nil {
				return cause(err)
			}
			n, err := res.Body.Read(nil)
			var reader sync.WaitGroup
			reader.Go(func() { io.Copy(io.Discard, res.Body) })
			res.Body.Close()
			reader.Wait()
			_, closed := res.Body.Read(make([]byte, 1))
			return fmt.Sprint(n, err, closed != nil)
		}},
	{name: "a body that is not read", serve: hello, client: func(t *testing.T, s *server, c *http.Client) string {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res, err := c.Do(s.request(ctx, "GET", "/", nil))
		return fmt.Sprint(res.Status, err)
	}},
	{name: "a context that ends during the body", serve: endless,
		client: func(t *testing.T, s *server, c *http.Client) string {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			res, err := c.Do(s.request(ctx, "GET", "/", nil))
			if err != nil {
				return cause(err)
			}
			defer res.Body.Close()
			io.ReadFull(res.Body, make([]byte, 10))
			cancel()
			_, err = io.Copy(io.Discard, res.Body)
			return cause(err)
		}},
	{name: "a context that ends before the answer",
		serve: func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		client: func(t *testing.T, s *server, c *http.Client) string {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			return read(c.Do(s.request(ctx, "GET", "/", nil)))
		}},
	{name: "Client.Timeout", serve: func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		client: func(t *testing.T, s *server, c *http.Client) string {
			c.Timeout = 50 * time.Millisecond
			_, err := c.Get(s.URL)
			var timeout net.Error
			return fmt.Sprint(errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded))
		}},
	{name: "Client.Timeout during the body", serve: endless,
		client: func(t *testing.T, s *server, c *http.Client) string {
			c.Timeout = time.Second
			res, err := c.Get(s.URL)
			if err != nil {
				return cause(err)
			}
			defer res.Body.Close()
			_, err = io.Copy(io.Discard, res.Body)
			var timeout net.Error
			return fmt.Sprint(errors.As(err, &timeout) && timeout.Timeout())
		}},
	{name: "redirects with a body", serve: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/end" {
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
			return
		}
		echo(w, r)
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		res, err := c.Do(s.request(t.Context(), "PUT", "/begin", strings.NewReader("carried")))
		return read(res, err) + res.Request.URL.Path
	}},
	{name: "a redirect of a body that cannot be read again", serve: func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), "PUT", "/", strings.NewReader("carried"))
		req.GetBody = nil
		return read(c.Do(req))
	}},
	{name: "cookies", serve: func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "yes"})
		fmt.Fprint(w, r.Cookies())
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		c.Jar, _ = cookiejar.New(nil)
		return get(t, s, c) + get(t, s, c)
	}},
	{name: "Expect", once: true, serve: echo, client: func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), "POST", "/", strings.NewReader("expected"))
		req.Header.Set("Expect", "100-continue")
		return read(c.Do(req))
	}},
	{name: "Connection: close", serve: func(w http.ResponseWriter, r *http.Request) { // over HTTP/2 it is GOAWAY
		w.Header().Set("Connection", "close")
		events(w, r)
	}, client: func(t *testing.T, s *server, c *http.Client) string {
		var all []string
		for range 10 {
			all = append(all, get(t, s, c))
		}
		return fmt.Sprint(all)
	}},
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("cannot be read") }

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }

func echo(w http.ResponseWriter, r *http.Request) {
	all, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s of %d, %v, %v", all, r.ContentLength, r.TransferEncoding, err)
}

func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for n := range 3 {
		w.(http.Flusher).Flush()
		fmt.Fprintf(w, "data: %d\n\n", n)
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for r.Context().Err() == nil {
		if _, err := w.Write(large()[:1000]); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

func get(t *testing.T, s *server, c *http.Client) string { return read(c.Get(s.URL)) }

// TestTransport_DoesWhatPlainHTTPDoes compares hedging with plain net/http, over HTTP/1.1 and
// HTTP/2: where no hedge is due, where all attempts are sent at once, and where the primary never
// answers.
func TestTransport_DoesWhatPlainHTTPDoes(t *testing.T) {
	for _, tc := range control {
		t.Run(tc.name, func(t *testing.T) {
			for _, h2 := range []bool{false, true} {
				s := newServer(t, h2, false, tc.serve)
				want := tc.client(t, s, &http.Client{Transport: s.base})
				for mode, delay := range map[string]time.Duration{"no hedge": time.Hour, "at once": time.Nanosecond,
					"a hedge wins": time.Millisecond} {
					hangs := mode == "a hedge wins"
					if hangs && tc.once {
						continue
					}
					s := newServer(t, h2, hangs, tc.serve)
					scheduler := hedgetest.Fixed(t, delay, hedge.WithMinDelay(0))
					got := tc.client(t, s, &http.Client{Transport: hedgehttp.Transport(scheduler, s.base)})
					if got != want {
						t.Errorf("HTTP/2 %v, %s:\n\t%s\nplain:\n\t%s", h2, mode, got, want)
					}
					if sent := scheduler.Stats().Hedges > 0; sent && (tc.once || mode == "no hedge") {
						t.Errorf("HTTP/2 %v, %s: a hedge was sent", h2, mode)
					}
				}
			}
		})
	}
}
