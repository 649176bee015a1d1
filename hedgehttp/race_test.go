package hedgehttp_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// script has the reply of each attempt, by its number.
type script []reply

type reply struct {
	after  time.Duration
	status int // 0: an error
	header http.Header
	body   io.Reader     // nil: its number
	flush  time.Duration // the body comes that much later
}

type fake struct {
	script script
	sent   atomic.Int64
	open   atomic.Int64 // bodies of responses that were not closed
}

func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	n := int(f.sent.Add(1)) - 1
	req.Header.Set("Edited", fmt.Sprint(n)) // which breaks the contract
	req.URL.Host = fmt.Sprint(n)
	if req.Body != nil {
		defer req.Body.Close()
		whole, _ := io.ReadAll(req.Body)
		again, _ := req.GetBody() // as for a retry
		if retried, _ := io.ReadAll(again); string(whole) != "body" || string(retried) != "body" {
			return nil, fmt.Errorf("the body is %q, and %q when it is sent again", whole, retried)
		}
	}
	r := f.script[n]
	if err := wait(req.Context(), r.after); err != nil {
		return nil, err
	}
	switch {
	case r.status == 0:
		return nil, errors.New("no connection")
	case r.status < 0:
		panic("base")
	}
	f.open.Add(1)
	b := r.body
	if b == nil {
		b = strings.NewReader(fmt.Sprint(n))
	}
	return &http.Response{
		StatusCode: r.status, Status: http.StatusText(r.status), Header: r.header, Request: req,
		Body: &fakeBody{Reader: b, fake: f, ctx: req.Context(), flush: r.flush},
	}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 { // see hedgetest.Taking
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fakeBody needs the context of its attempt.
type fakeBody struct {
	io.Reader
	fake   *fake
	ctx    context.Context
	flush  time.Duration
	closed atomic.Bool
}

func (b *fakeBody) Read(p []byte) (int, error) {
	if err := wait(b.ctx, b.flush); err != nil {
		return 0, err
	}
	b.flush = 0
	return b.Reader.Read(p)
}

func (b *fakeBody) Close() error {
	if !b.closed.Swap(true) {
		b.fake.open.Add(-1)
	}
	return nil
}

func jsonLines() http.Header { return http.Header{"Content-Type": {"application/x-ndjson"}} }

// is answers with a status; streams sends its headers at once, and its body later.
func is(status int, after time.Duration) reply { return reply{after: after, status: status} }
func streams(flush time.Duration, body io.Reader) reply {
	return reply{status: 200, header: jsonLines(), flush: flush, body: body}
}

// TestTransport_Race races attempts: the first starts at 0, the others 10 ms apart.
func TestTransport_Race(t *testing.T) {
	const never = time.Hour
	retry := func(after string) reply {
		return reply{after: 12 * ms, status: 503, header: http.Header{"Retry-After": {after}}}
	}
	retryOfHedge := retry("0") // it is not sent again at once
	retryOfHedge.after = ms
	failed, panics := reply{after: 5 * ms}, is(-1, 5*ms)
	for _, tc := range []struct {
		name   string
		method string // GET if it is empty; with an Idempotency-Key
		script script
		opts   []hedge.Option
		want   string
		at     time.Duration
	}{
		{name: "no hedge is due", script: script{is(200, 5*ms)}, want: "200 0", at: 5 * ms},
		{name: "a hedge wins", script: script{is(200, never), is(200, 5*ms)}, want: "200 1", at: 15 * ms},
		{name: "the primary wins", script: script{is(200, 12*ms), is(200, never)}, want: "200 0", at: 12 * ms},
		{name: "an error before a hedge", script: script{failed}, want: "no connection", at: 5 * ms},
		{name: "all fail", script: script{is(502, 12*ms), failed, is(429, 5*ms)}, want: "502 0", at: 15 * ms},
		{name: "a hedge's 409 of a POST", method: "POST", script: script{is(200, 30*ms), is(409, 5*ms), is(200, never)},
			want: "200 0", at: 30 * ms},
		{name: "404 is non-fatal", script: script{is(404, 12*ms), is(200, 5*ms)},
			opts: []hedge.Option{hedge.WithNonFatalCodes(codes.NotFound)}, want: "200 1", at: 15 * ms},
		{name: "Retry-After", script: script{retry("1"), is(200, 50*ms), is(200, 0)}, want: "200 1", at: 60 * ms},
		{name: "Retry-After, 0", script: script{retry("0"), is(200, 50*ms), is(200, 0)}, want: "200 2", at: 20 * ms},
		{name: "Retry-After, 0, of a hedge", script: script{is(200, 15*ms), retryOfHedge, is(200, 0)},
			want: "200 0", at: 15 * ms},
		{name: "Retry-After, a past date",
			script: script{retry("Fri, 31 Dec 1999 23:59:59 GMT"), is(200, 50*ms), is(200, 0)}, want: "200 2", at: 20 * ms},
		{name: "Retry-After, a date", // virtual time starts at 00:00:00
			script: script{retry("Sat, 01 Jan 2000 00:00:01 GMT"), is(200, 50*ms), is(200, 0)}, want: "200 1", at: 60 * ms},
		{name: "headers at once", method: "POST", script: script{streams(never, nil), streams(5*ms, nil)}, want: "200 1", at: 15 * ms},
		{name: "a stream that fails before its first byte", method: "POST",
			script: script{streams(12*ms, &failing{}), streams(5*ms, nil)}, want: "200 1", at: 15 * ms},
		{name: "a stream that fails alone", method: "POST", script: script{streams(5*ms, &failing{})},
			want: "200 cannot be read", at: 5 * ms},
		{name: "an empty stream", method: "POST", script: script{streams(5*ms, http.NoBody)}, want: "200 ", at: 5 * ms},
		{name: "a rejected answer", script: script{is(203, 5*ms), is(200, 5*ms)},
			opts: []hedge.Option{acceptable}, want: "200 1", at: 10 * ms},
		{name: "a rejected answer of all", script: script{is(203, 5*ms), is(203, 5*ms), is(203, 5*ms)},
			opts: []hedge.Option{acceptable}, want: "203 0", at: 15 * ms},
		{name: "a rejected status", script: script{is(404, 5*ms), is(200, 5*ms)},
			opts: []hedge.Option{acceptable}, want: "200 1", at: 10 * ms},
		{name: "a rejected status of a hedge",
			script: script{{after: 30 * ms}, is(404, 5*ms), {after: 30 * ms}}, opts: []hedge.Option{acceptable},
			want: "404 1", at: 45 * ms},
		{name: "a panic of the primary", script: script{panics}, want: "panic: base", at: 5 * ms},
		{name: "a panic of a hedge", script: script{is(200, never), panics}, want: "panic: base", at: 15 * ms},
		{name: "the caller gives up", script: script{is(200, never), is(200, never), is(200, never)},
			want: "context deadline exceeded", at: 100 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			base := &fake{script: tc.script}
			rt := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, tc.opts...), base, hedgehttp.WithIdempotencyKey())
			ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
			defer cancel()
			body := &closing{Reader: strings.NewReader("body")}
			req, _ := http.NewRequestWithContext(ctx, cmp.Or(tc.method, "GET"), "http://host/path", body)
			req.ContentLength = 4
			req.Header.Set("Idempotency-Key", "key")
			before, began := fmt.Sprint(req.Header, req.URL), time.Now()
			if got := outcome(t, rt, req); got != tc.want || time.Since(began) != tc.at {
				t.Errorf("the response is %s after %v, want %s after %v", got, time.Since(began), tc.want, tc.at)
			}
			synctest.Wait()
			if after := fmt.Sprint(req.Header, req.URL); after != before {
				t.Errorf("the request was changed: %s, before %s", after, before)
			}
			if n := body.closed.Load(); n != 1 {
				t.Errorf("the request's body was closed %d times", n)
			}
			if n := base.open.Load(); n != 0 {
				t.Errorf("%d bodies were not closed", n)
			}
			if n := reflect.ValueOf(ctx).Elem().FieldByName("children").Len(); n != 0 && ctx.Err() == nil {
				t.Errorf("%d contexts stay with the caller's", n)
			}
		})
	}
}

// acceptable rejects 203 and 404.
var acceptable = hedge.WithAcceptable(func(_ context.Context, _ string, reply any, _ error) bool {
	res, ok := reply.(*http.Response)
	return ok && res.StatusCode != 203 && res.StatusCode != 404
})

type closing struct {
	io.Reader
	closed atomic.Int64
}

func (c *closing) Close() error {
	c.closed.Add(1)
	if r, ok := c.Reader.(io.Closer); ok {
		return r.Close()
	}
	return nil
}

func outcome(t *testing.T, rt http.RoundTripper, req *http.Request) (got string) {
	defer func() {
		if p := recover(); p != nil {
			if h, ok := p.(*hedge.Panic); ok {
				p = h.Value
			}
			got = fmt.Sprint("panic: ", p)
		}
	}()
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	if res.Request != req {
		t.Error("Response.Request is not the caller's")
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		all = []byte(err.Error())
	}
	return fmt.Sprint(res.StatusCode, " ", string(all))
}

// TestTransport_LearnsTheFirstByte: a stream has answered with its first byte, hedged or not.
// RoundTrip of a request that is not hedged returns with the headers.
func TestTransport_LearnsTheFirstByte(t *testing.T) {
	for _, headers := range []time.Duration{ms, 99 * ms} { // when they come; the first byte comes after 100 ms
		hedgetest.Run(t, headers.String(), func(t *testing.T) {
			// Auto sends no hedge where all latencies are equal.
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Percentile(0.95)))
			named := hedgehttp.WithFirstByte(func(res *http.Response) bool { return res.StatusCode == 206 })
			for n := range 100 {
				base := &fake{script: script{{after: headers, status: 206, flush: 100*ms - headers}}}
				rt := hedgehttp.Transport(s, base, hedgehttp.WithName(nil), named)
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host", nil)
				began := time.Now()
				res, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); n < 20 && took != headers || n >= 20 && took != 100*ms {
					t.Fatalf("request %d returned after %v", n, took)
				}
				io.ReadAll(res.Body)
				res.Body.Close()
			}
			if p50, _ := s.Latency("http://host", "GET", 0.5); p50 < 95*ms || p50 > 105*ms {
				t.Errorf("the median is %v, want 100 ms, as the first byte takes", p50)
			}
		})
	}
}

// TestTransport_ManyAtOnce checks that each request gets a complete answer of one attempt, and that
// nothing keeps running.
func TestTransport_ManyAtOnce(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		var requests atomic.Int64
		s := newServer(t, h2, func(w http.ResponseWriter, r *http.Request) {
			all, _ := io.ReadAll(r.Body)
			// Over HTTP/2 it is GOAWAY. Package net/http has a data race of its own when it then
			// sends a request with a body again: rewindBody reads the body that writeRequestBody
			// reads.
			n := requests.Add(1)
			if n%20 == 0 && !(h2 && longtest.Race) {
				w.Header().Set("Connection", "close")
			}
			if n%3 == 0 { // it waits for the other attempts, which need a connection
				w.WriteHeader(503)
			}
			w.Write(bytes.Repeat(append(all, ' '), 1000))
		})
		s.base.MaxConnsPerHost = 4
		scheduler := hedgetest.Fixed(t, time.Nanosecond, hedge.WithMinDelay(0))
		client := &http.Client{Transport: hedgehttp.Transport(scheduler, s.base, hedgehttp.WithIdempotencyKey())}
		hedgetest.P99(t, 200, 8, func(n int) error {
			id := fmt.Sprint(n)
			res, err := client.Do(s.request(t.Context(), "POST", "/", strings.NewReader(id)))
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if n%3 == 0 { // closed unread
				return nil
			}
			all, err := io.ReadAll(res.Body)
			if string(all) != strings.Repeat(id+" ", 1000) {
				return fmt.Errorf("%d bytes of another answer, %v", len(all), err)
			}
			return nil
		})
		if c := scheduler.Stats(); c.HedgeWins == 0 || c.PrimaryWins == 0 {
			t.Errorf("HTTP/2 %v: only hedges have won, or only primaries: %+v", h2, c)
		}
	}
}

// TestTransport_CloseIdleConnections closes the connections of both transports. The second sends
// hedges. Without a scheduler the transport is base itself.
func TestTransport_CloseIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, other := &pool{fake: fake{script: script{{after: 50 * ms, status: 200}}}},
			&pool{fake: fake{script: script{{status: 201}}}}
		client := &http.Client{Transport: hedgehttp.Transport(hedgetest.Fixed(t, 10*ms), base,
			hedgehttp.WithHedgeTransport(nil), hedgehttp.WithHedgeTransport(other))}
		if got := read(client.Get("http://host")); !strings.HasPrefix(got, "201 ") {
			t.Error(got)
		}
		if client.CloseIdleConnections(); !base.closed || !other.closed {
			t.Error("CloseIdleConnections was not passed on")
		}
		if hedgehttp.Transport(nil, base) != base ||
			hedgehttp.Transport(new(hedge.Scheduler), nil) != http.DefaultTransport {
			t.Error("without a scheduler, Transport does not return base")
		}
	})
}

type pool struct {
	fake
	closed bool
}

func (p *pool) CloseIdleConnections() { p.closed = true }

// TestTransport_LogsWhatToSelect checks the log record of an HTTP target without a selected
// request, and the debug page. Neither mistakes it for a gRPC target.
func TestTransport_LogsWhatToSelect(t *testing.T) {
	var log strings.Builder
	s := hedgetest.All(t, hedge.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	base := &fake{script: slices.Repeat(script{{status: 200}}, 100)}
	for range 100 {
		req, _ := http.NewRequest("POST", "https://host/orders", nil)
		outcome(t, hedgehttp.Transport(s, base), req)
	}
	got := log.String()
	for _, format := range []string{"text", "html"} {
		page := httptest.NewRecorder()
		debug.Handler(s).ServeHTTP(page, httptest.NewRequest("GET", "/?format="+format, nil))
		got += page.Body.String()
	}
	for _, want := range []string{"target=https://host", "methods=[POST]", `WithReadOnlyMethods(\"POST /_search\")`,
		"No option selects these requests: WithAllMethods selects GET",
		"<h2>https://host</h2>"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if strings.Contains(got, "gRPC") {
		t.Errorf("the message mentions gRPC: %s", got)
	}
}

// TestTransport_ReusedRequest: a caller that has closed the body may change its request, though a
// hedge may only now be starting. The race detector finds what reads it. The context of the attempt
// has ended then.
func TestTransport_ReusedRequest(t *testing.T) {
	var ctx context.Context
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		time.Sleep(20 * time.Microsecond)
		ctx = req.Context()
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x"))}, nil
	})
	rt := hedgehttp.Transport(hedgetest.Fixed(t, time.Nanosecond, hedge.WithMinDelay(0)), base,
		hedgehttp.WithHedgeTransport(stuck))
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://x/", nil)
	for range 500 {
		res, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); ctx.Err() == nil {
			t.Error("the context of a closed body has not ended")
		}
		req.Header.Set("Edited", "yes")
		req.URL.Path = "/edited"
	}
}

// stuck answers only when its context ends.
var stuck = roundTrip(func(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, req.Context().Err()
})

// TestTransport_ABodyThatStalls: a request whose context ends while its body is read ahead returns,
// and the body is closed once, as without hedging. Closing does not wake each reader.
func TestTransport_ABodyThatStalls(t *testing.T) {
	for name, s := range map[string]*hedge.Scheduler{"plain": nil, "hedged": hedgetest.Fixed(t, 10*ms)} {
		for _, deaf := range []bool{false, true} {
			hedgetest.Run(t, fmt.Sprint(name, " deaf ", deaf), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
				defer cancel()
				reader, began := io.Reader(&slowly{Reader: strings.NewReader("body"), after: time.Hour}), time.Now()
				if !deaf {
					reader, _ = io.Pipe()
				}
				body := &closing{Reader: reader}
				req, _ := http.NewRequestWithContext(ctx, "GET", "http://host", body)
				req.ContentLength = 4
				_, err := hedgehttp.Transport(s, stuck).RoundTrip(req)
				took := time.Since(began)
				time.Sleep(time.Hour)
				if n := body.closed.Load(); err != context.DeadlineExceeded || n != 1 || took != 10*ms {
					t.Errorf("%v after %v, and the body was closed %d times, want the deadline's end and once", err, took, n)
				}
			})
		}
	}
}

// TestTransport_OneConnection: a response that waits for other attempts frees its connection for them.
func TestTransport_OneConnection(t *testing.T) {
	sends := func(status int) http.HandlerFunc {
		return after(15*ms, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			w.Write(large()[:kept-1])
		})
	}
	for _, tc := range []struct {
		name     string
		attempts []http.HandlerFunc
		opts     []hedge.Option
		want     string
	}{
		{name: "the primary's failure", attempts: []http.HandlerFunc{sends(503), sends(200)}, want: "200 1"},
		{name: "three failures", attempts: []http.HandlerFunc{sends(503), sends(401), sends(503)}, want: "503 0"},
		{name: "rejected answers", attempts: []http.HandlerFunc{sends(203), sends(203), sends(203)},
			opts: []hedge.Option{acceptable}, want: "203 0"},
		{name: "a failover", attempts: []http.HandlerFunc{sends(503), sends(200)},
			opts: []hedge.Option{hedge.WithFailover(), hedge.WithWarmup(1<<30, time.Hour)}, want: "200 1"},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			base := inMemory(t, false, tc.attempts...)
			base.MaxConnsPerHost = 1
			if got := attemptOf(hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, tc.opts...), base), "GET", nil); got != tc.want {
				t.Errorf("the response is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTransport_AStreamThatIsClosed(t *testing.T) {
	for failures, use := range []func(body io.ReadCloser){
		func(body io.ReadCloser) { body.Close(); io.ReadAll(body) },
		func(body io.ReadCloser) { io.ReadAll(body); body.Close() }, // fails
	} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, hedgetest.Throttle(10, 0.1))
			base := &fake{script: script{{status: 200, header: jsonLines(), body: &failing{}}}}
			req, _ := http.NewRequestWithContext(t.Context(), "QUERY", "http://host", nil)
			res, err := hedgehttp.Transport(s, base).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			use(res.Body)
			if m := s.Methods()[0]; m.ThrottleTokens != float64(10-failures) {
				t.Errorf("the throttle has %v tokens after %d failures, want %d", m.ThrottleTokens, failures, 10-failures)
			}
		})
	}
}

func BenchmarkTransport(b *testing.B) {
	nothing := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	never := hedgetest.Fixed(b, time.Hour)
	off := hedgetest.All(b, hedge.WithMaxHedges(0))
	for _, bc := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"nothing/plain", nothing},
		{"nothing/hedged", hedgehttp.Transport(never, nothing)},
		{"nothing/watching", hedgehttp.Transport(off, nothing)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			req, _ := http.NewRequestWithContext(b.Context(), "GET", "http://host/", nil)
			for b.Loop() {
				res, err := bc.rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
}
