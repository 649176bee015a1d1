package hedgehttp_test

import (
	"bufio"
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
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"regexp"
	"strconv"
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
	base  *http.Transport
	hangs atomic.Bool
	seen  sync.Map // path → *atomic.Int64: attempts
}

func newServer(t testing.TB, h2 bool, handler http.HandlerFunc) *server {
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempts, _ := s.seen.LoadOrStore(r.URL.Path, new(atomic.Int64))
		if attempts.(*atomic.Int64).Add(1) == 1 && s.hangs.Load() && r.Header.Get("Once") == "" {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		handler(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if s.EnableHTTP2 = h2; h2 {
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
	return fmt.Sprintf("%d %s %s, length %d %t, trailer %v", res.StatusCode, short(all), cause(err),
		res.ContentLength, res.Uncompressed, res.Trailer)
}

func short(all []byte) string {
	if len(all) > 200 {
		return fmt.Sprintf("%d bytes, %x", len(all), sha256.Sum256(all))
	}
	return strconv.Quote(string(all))
}

// cause is an error without the addresses in it.
func cause(err error) string {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return regexp.MustCompile(`[\d.]+:\d+`).ReplaceAllString(fmt.Sprint(err), "address")
}

// large is 15 MB, or a tenth of it in the short tier. kept is the largest body that is kept.
var large = sync.OnceValue(func() []byte {
	return bytes.Repeat([]byte("0123456789"), longtest.Size(150<<10, 3<<19))
})

const kept = 1 << 20

// client makes the requests of one row of control, and returns what its caller sees.
type client func(t *testing.T, s *server, c *http.Client) string

// sends is a client of one request.
func sends(method string, body func() io.Reader, edits ...func(*http.Request)) client {
	return func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), method, "/", body())
		for _, edit := range edits {
			edit(req)
		}
		return read(c.Do(req))
	}
}

func none() io.Reader                { return nil }
func text() io.Reader                { return strings.NewReader("a body") }
func noBody() io.Reader              { return http.NoBody }
func piped() io.Reader               { return struct{ io.Reader }{text()} }
func half() io.Reader                { return io.MultiReader(strings.NewReader("half"), &failing{}) }
func tooLarge() io.Reader            { return bytes.NewReader(large()) }
func justTooLarge() io.Reader        { return bytes.NewReader(large()[:kept+1]) }
func withoutGetBody(r *http.Request) { r.GetBody = nil }
func gzipIsWelcome(r *http.Request)  { r.Header.Set("Accept-Encoding", "gzip") }
func with(key, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(key, value) }
}
func expects(r *http.Request)            { r.Header.Set("Expect", "100-continue") }
func withTrailer(r *http.Request)        { r.Trailer = http.Header{"Sum": {"17"}} }
func length(n int64) func(*http.Request) { return func(r *http.Request) { r.ContentLength = n } }

// opens is a client that begins to read a response, with a context that it may end.
func opens(use func(res *http.Response, cancel func()) string) client {
	return func(t *testing.T, s *server, c *http.Client) string {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res, err := c.Do(s.request(ctx, "GET", "/", nil))
		if err != nil {
			return cause(err)
		}
		return use(res, cancel)
	}
}

// proxied is a client of a reverse proxy, with the transport under test.
func proxied(next client) client {
	return func(t *testing.T, s *server, c *http.Client) string {
		to, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewServer(&httputil.ReverseProxy{Transport: c.Transport,
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
		defer front.Close()
		return next(t, &server{Server: front}, front.Client())
	}
}

// control has what plain net/http and hedging must do alike.
var control = []struct {
	name   string
	once   bool // the request must be sent once
	serve  http.HandlerFunc
	client client
}{
	{name: "GET", serve: hello, client: get},
	{name: "events", serve: events, client: get},
	{name: "no events", serve: serves("", "Content-Type", "application/x-ndjson"), client: get},
	{name: "POST", serve: echo, client: sends("POST", text)},
	{name: "POST without GetBody", serve: echo, client: sends("POST", text, withoutGetBody)},
	{name: "POST http.NoBody", serve: echo, client: sends("POST", noBody)},
	{name: "a negative ContentLength", serve: echo, client: sends("POST", text, length(-1000))},
	{name: "POST of a pipe", once: true, serve: echo, client: sends("POST", piped)},
	{name: "a body that fails", once: true, serve: echo, client: sends("POST", half, length(8))},
	{name: "a body shorter than its Content-Length", serve: echo,
		client: func(t *testing.T, s *server, c *http.Client) string {
			req := s.request(t.Context(), "POST", "/", text())
			req.ContentLength = 10
			req.Header.Set("Once", "1")
			_, err := c.Do(req)
			return fmt.Sprint(err != nil) // plain HTTP/1.1 reports what the write met, or the read, whichever comes first
		}},
	{name: "a large body there", once: true, serve: echo, client: sends("POST", tooLarge)},
	{name: "a large body of unknown length", once: true, serve: echo, client: sends("POST", justTooLarge, length(-1))},
	{name: "a large body back", serve: func(w http.ResponseWriter, r *http.Request) { w.Write(large()) }, client: get},
	{name: "trailers", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		io.WriteString(w, "body")
		w.Header().Set("Sum", "17")
	}, client: get},
	{name: "trailers after no body", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		w.Header().Set("Content-Length", "0")
		w.(http.Flusher).Flush()
		w.Header().Set("Sum", "17")
	}, client: get},
	{name: "Content-Length mismatch", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "too short")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, client: opens(func(res *http.Response, _ func()) string {
		_, err := io.ReadAll(res.Body)
		return fmt.Sprint(res.ContentLength, err != nil, res.Body.Close())
	})},
	{name: "gzip", serve: serves(zipped, "Content-Encoding", "gzip"), client: get},
	{name: "gzip that the client asks for", serve: serves(zipped, "Content-Encoding", "gzip", "Content-Type",
		"application/x-ndjson"), client: sends("GET", none, gzipIsWelcome)},
	{name: "HEAD of a stream with a Content-Length", serve: serves("", "Content-Type", "text/event-stream",
		"Content-Length", "12345"), client: sends("HEAD", none)},
	{name: "trailers of a request", serve: echo, client: sends("POST", text, length(-1), withTrailer)},
	{name: "trailers of a hedge's request, set as its body ends", once: true, serve: echo, client: sends("POST", piped,
		length(-1), with("Hedge-Attempt", "1"), func(r *http.Request) {
			r.Trailer = http.Header{"Sum": nil}
			r.Body = io.NopCloser(io.MultiReader(r.Body, atEnd(func() { r.Trailer.Set("Sum", "17") })))
		})},
	{name: "a body that is read late", serve: events, client: func(t *testing.T, s *server, c *http.Client) string {
		res, err := c.Get(s.URL)
		for range 20 { // and other requests
			get(t, s, c)
		}
		return read(res, err)
	}},
	{name: "a body that is read and closed at once", serve: endless,
		client: opens(func(res *http.Response, _ func()) string {
			n, err := res.Body.Read(nil)
			var reader sync.WaitGroup
			reader.Go(func() { io.Copy(io.Discard, res.Body) })
			again := res.Body.Close()
			reader.Wait()
			_, closed := res.Body.Read(make([]byte, 1))
			return fmt.Sprint(n, err, again, closed != nil)
		})},
	{name: "a context that ends during the body", serve: endless,
		client: opens(func(res *http.Response, cancel func()) string {
			defer res.Body.Close()
			io.ReadFull(res.Body, make([]byte, 10))
			cancel()
			_, err := io.Copy(io.Discard, res.Body)
			return cause(err)
		})},
	{name: "a context that ends before the answer",
		serve: never,
		client: func(t *testing.T, s *server, c *http.Client) string {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			return read(c.Do(s.request(ctx, "GET", "/", nil)))
		}},
	{name: "Client.Timeout, mostly during the body", serve: endless,
		client: func(t *testing.T, s *server, c *http.Client) string {
			c.Timeout = 50 * time.Millisecond
			res, err := c.Get(s.URL)
			if err == nil {
				defer res.Body.Close()
				_, err = io.Copy(io.Discard, res.Body)
			}
			var timeout net.Error
			return fmt.Sprint(errors.As(err, &timeout) && timeout.Timeout())
		}},
	{name: "redirects with a body", serve: redirects,
		client: func(t *testing.T, s *server, c *http.Client) string {
			res, err := c.Do(s.request(t.Context(), "PUT", "/", text()))
			return read(res, err) + fmt.Sprint(res.Request.URL, res.Request.Header, res.Request.Context().Err())
		}},
	{name: "a redirect of a body that cannot be read again", serve: redirects, client: sends("PUT", text, withoutGetBody)},
	{name: "the caller's cause", serve: endless, client: func(t *testing.T, s *server, c *http.Client) string {
		ctx, cancel := context.WithCancelCause(t.Context())
		res, err := c.Do(s.request(ctx, "GET", "/", nil))
		if cancel(errors.New("the caller's cause")); err == nil {
			defer res.Body.Close()
			_, err = io.Copy(io.Discard, res.Body)
		}
		return cause(err)
	}},
	{name: "a body that ends early, read again", serve: func(w http.ResponseWriter, r *http.Request) {
		events(w, r)
		panic(http.ErrAbortHandler)
	}, client: opens(func(res *http.Response, _ func()) string {
		all, first := io.ReadAll(res.Body)
		more, again := io.ReadAll(res.Body)
		return fmt.Sprintf("%q %q %v %v %v", all, more, first != nil && first == again, res.Body.Close(), res.Body.Close())
	})},
	{name: "an empty read", serve: serves("{}\n", "Content-Type", "application/x-ndjson"),
		client: opens(func(res *http.Response, _ func()) string {
			n, err := res.Body.Read(nil)
			all, then := io.ReadAll(res.Body)
			return fmt.Sprintf("%d %v %q %v", n, err, all, then)
		})},
	{name: "proxied events", serve: events, client: proxied(sends("GET", none))},
	{name: "proxied POST", serve: echo, client: proxied(sends("POST", text))},
	{name: "proxied trailers", serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(http.TrailerPrefix+"Sum", "17")
		w.(http.Flusher).Flush()
		echo(w, r)
	}, client: proxied(sends("POST", text))},
	{name: "Expect", once: true, serve: echo, client: sends("POST", text, expects)},
	{name: "an upgrade", once: true, serve: upgrades, client: func(t *testing.T, s *server, c *http.Client) string {
		req := s.request(t.Context(), "GET", "/", nil)
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
		res, err := c.Do(req)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			return read(res, err)
		}
		defer res.Body.Close()
		fmt.Fprintln(res.Body.(io.Writer), "echoed")
		line, err := bufio.NewReader(res.Body).ReadString('\n')
		return fmt.Sprintf("%q %v", line, err)
	}},
	{name: "Connection: close", serve: func(w http.ResponseWriter, r *http.Request) { // over HTTP/2 it is GOAWAY
		w.Header().Set("Connection", "close")
		events(w, r)
	}, client: func(t *testing.T, s *server, c *http.Client) (all string) {
		for range 5 {
			all += get(t, s, c)
		}
		return all
	}},
}

// failing fails once, and then has ended.
type failing struct{ failed bool }

func (f *failing) Read([]byte) (int, error) {
	if f.failed {
		return 0, io.EOF
	}
	f.failed = true
	return 0, errors.New("cannot be read")
}

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }

type atEnd func()

func (f atEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }

// serves sends a body, with headers by name and value.
func serves(body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		io.WriteString(w, body)
	}
}

var zipped = func() string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	io.WriteString(z, "zipped")
	z.Close()
	return b.String()
}()

func echo(w http.ResponseWriter, r *http.Request) {
	all, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s of %d, %v, %v, %v", short(all), r.ContentLength, r.TransferEncoding, err, r.Trailer)
}

func never(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func redirects(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/end" {
		http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		return
	}
	echo(w, r)
}

func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
	for n := range 3 {
		w.(http.Flusher).Flush()
		fmt.Fprintf(w, "data: %d\n\n", n)
	}
}

// upgrades changes the protocol of a connection, which HTTP/2 cannot, to an echo.
func upgrades(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fmt.Fprint(w, err)
		return
	}
	defer conn.Close()
	fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n"+
		"Content-Type: application/x-ndjson\r\n\r\n")
	rw.Flush()
	line, _ := rw.ReadString('\n')
	fmt.Fprint(rw, line)
	rw.Flush()
}

func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
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
// answers. "make http-suite" does so with the tests of net/http.
func TestTransport_DoesWhatPlainHTTPDoes(t *testing.T) {
	for _, tc := range control {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, h2 := range []bool{false, true} {
				s := newServer(t, h2, tc.serve)
				want := tc.client(t, s, &http.Client{Transport: s.base})
				for mode, delay := range map[string]time.Duration{"no hedge": time.Hour, "at once": time.Nanosecond,
					"a hedge wins": time.Millisecond} {
					hangs := mode == "a hedge wins"
					if hangs && tc.once {
						continue
					}
					s.hangs.Store(hangs)
					s.seen.Clear()
					scheduler := hedgetest.Fixed(t, delay, hedge.WithMinDelay(0))
					got := tc.client(t, s, &http.Client{Transport: hedgehttp.Transport(scheduler, s.base,
						hedgehttp.WithIdempotencyKey())})
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

// TestTransport_HooksSeeThePrimary: hooks of net/http, and of the dialer below it, are called for
// the primary alone. So are those for 1xx responses.
func TestTransport_HooksSeeThePrimary(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		hello(w, r)
	})
	s.hangs.Store(true)
	var get, dial, early atomic.Int64
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn:        func(string) { get.Add(1) },
		ConnectStart:   func(string, string) { dial.Add(1) },
		Got1xxResponse: func(int, textproto.MIMEHeader) error { early.Add(1); return nil },
	})
	another := s.base.Clone()
	defer another.CloseIdleConnections()
	scheduler := hedgetest.Fixed(t, 100*time.Millisecond)
	rt := hedgehttp.Transport(scheduler, s.base, hedgehttp.WithHedgeTransport(another))
	got := read(rt.RoundTrip(s.request(ctx, "GET", "/", nil)))
	if hedged := scheduler.Stats().HedgeWins; get.Load() != 1 || dial.Load() != 1 || early.Load() != 0 || hedged != 1 {
		t.Errorf("%s: %d connections asked for, %d dialed, %d early hints, %d hedges won", got, get.Load(),
			dial.Load(), early.Load(), hedged)
	}
}
