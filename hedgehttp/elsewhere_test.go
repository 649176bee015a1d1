package hedgehttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// providers is a transport: each host answers after a time, with a status and its request.
type providers map[string]reply

func (p providers) RoundTrip(req *http.Request) (*http.Response, error) {
	got := req.Method + " " + req.URL.Path + " " + req.Header.Get("Key")
	if req.Body != nil {
		body, _ := io.ReadAll(req.Body)
		req.Body.Close()
		got += " " + string(body)
	}
	r := p[req.URL.Host]
	if req.URL.Path == "/other" {
		r = is(404, 0)
	}
	if err := wait(req.Context(), r.after); err != nil {
		return nil, err
	}
	body := io.NopCloser(strings.NewReader(got))
	return &http.Response{StatusCode: r.status, Header: r.header, Request: req, Body: body}, nil
}

// counted is a body that must be closed.
type counted struct {
	io.Reader
	open *atomic.Int64
}

func (c counted) Close() error { c.open.Add(-1); return nil }

func TestWithHedgeRequest(t *testing.T) {
	later := http.Header{"Retry-After": {"60"}}
	var open atomic.Int64
	toB := func(_ int, r *http.Request) (*http.Request, error) {
		r.URL.Host, r.URL.Path = "b", "/chat"
		r.Header.Set("Key", "b's")
		return r, nil
	}
	other := func(int, *http.Request) (*http.Request, error) {
		open.Add(1)
		return http.NewRequest("POST", "http://b/new", counted{strings.NewReader("other"), &open})
	}
	for _, tc := range []struct {
		name  string
		a, b  reply
		hedge func(int, *http.Request) (*http.Request, error)
		opts  []hedge.Option
		want  string // of the body
		from  string // the host of the response's request
		fails int64  // calls without a hedge
		sent  int64
		spent bool // a call has spent the budget's token
	}{
		{name: "a answers", a: is(200, 0), hedge: toB, want: "POST /v1 a's body", from: "a"},
		{name: "b answers", a: is(200, time.Hour), b: is(200, 0), hedge: toB, want: "POST /chat b's body",
			from: "b", sent: 1},
		{name: "a body of its own", a: is(200, time.Hour), b: is(200, 0), hedge: other, want: "POST /new  other", from: "b",
			sent: 1},
		{name: "a fails", a: is(503, 0), b: is(200, 0), hedge: toB, want: "POST /chat b's body", from: "b", sent: 1},
		{name: "a wants no attempt", a: reply{status: 503, header: later}, b: is(200, 0), hedge: other,
			want: "POST /new  other", from: "b", sent: 1},
		{name: "neither wants one", a: reply{status: 503, header: later}, b: reply{status: 503, header: later},
			hedge: other, want: "POST /v1 a's body", from: "a", sent: 1},
		{name: "no budget", a: is(503, 0), b: is(200, 0), hedge: other, opts: []hedge.Option{hedge.WithBudgetPercent(0.01)},
			spent: true, want: "POST /v1 a's body", from: "a", sent: 1},
		{name: "an error", a: is(503, 0), hedge: func(int, *http.Request) (*http.Request, error) {
			return nil, errors.New("no key")
		}, want: "POST /v1 a's body", from: "a", fails: 1},
		{name: "no request", a: is(503, 0), hedge: func(int, *http.Request) (*http.Request, error) { return nil, nil },
			want: "POST /v1 a's body", from: "a", fails: 1},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			opts := append([]hedge.Option{hedge.WithReadOnlyMethods("/v1/*", "/v1"), hedge.WithFailover()}, tc.opts...)
			s := hedgetest.New(t, append(opts, hedge.WithWarmup(1<<30, 10*ms))...)
			client := http.Client{Transport: hedgehttp.Transport(s, providers{"a": tc.a, "b": tc.b},
				hedgehttp.WithHedgeRequest(tc.hedge))}
			do := func() *http.Response {
				req, _ := http.NewRequest("POST", "http://a/v1", strings.NewReader("body"))
				req.Header.Set("Key", "a's")
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			if tc.spent {
				do().Body.Close()
			}
			res := do()
			body, err := io.ReadAll(res.Body)
			if res.Body.Close(); string(body) != tc.want || err != nil || res.Request.URL.Host != tc.from {
				t.Errorf("%q, %v from %v, want %q from %s", body, err, res.Request.URL, tc.want, tc.from)
			}
			time.Sleep(time.Minute)
			if n := open.Swap(0); n != 0 {
				t.Errorf("%d bodies are open", n)
			}
			received := int64(0)
			for _, m := range s.Methods() {
				if received += m.Received; m.Received > 0 && m.Target != "http://b" {
					t.Errorf("%s received a hedge", m.Target)
				}
			}
			if got := s.Stats(); got.NotReplayable != tc.fails || received != tc.sent || got.Hedges != tc.sent {
				t.Errorf("%d calls not replayable, %d hedges, %d received, want %d, %d", got.NotReplayable, got.Hedges, received,
					tc.fails, tc.sent)
			}
		})
	}
}

// TestWithHedgeRequest_TwoDestinations has requests to a, 5% of them slow, with hedges to b, and then
// to c. Latencies of hedges and quotas are kept by destination.
func TestWithHedgeRequest_TwoDestinations(t *testing.T) {
	for _, tc := range []struct {
		name  string
		b, c  reply
		known string  // a host with calls of its own
		saved float64 // that the plan for c predicts
		quota string  // the host to which the guard lets no hedge
	}{
		{name: "c is slow", b: is(200, 10*ms), c: is(200, 500*ms)},
		{name: "c is slow for its own calls", b: is(200, 10*ms), c: is(200, 500*ms), known: "c"},
		{name: "b has no quota", b: is(429, 0), c: is(200, 10*ms), saved: .5, quota: "b"},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s, host, hosts := hedgetest.All(t, hedge.WithMaxHedges(1)), "b", providers{"b": tc.b, "c": tc.c}
			client := http.Client{Transport: hedgehttp.Transport(s, hosts,
				hedgehttp.WithHedgeRequest(func(_ int, r *http.Request) (*http.Request, error) {
					r.URL.Host = host
					return r, nil
				}))}
			get := func(host string) {
				if res, err := client.Get("http://" + host + "/x"); err != nil || res.StatusCode != 200 {
					t.Errorf("the response is %v, %v; want 200", res, err)
				}
			}
			row := func(target string) (m stats.Method) {
				for _, m = range s.Methods() {
					if m.Target == target {
						return m
					}
				}
				return stats.Method{}
			}
			guarded := func(hosts ...string) {
				for _, host := range hosts {
					if held := !row("http://" + host).Guard.Since.IsZero(); held != (host == tc.quota) {
						t.Errorf("the guard holds hedges to %s back: %t", host, held)
					}
				}
			}
			for n := range 6000 {
				if hosts["a"] = is(200, 10*ms); n%20 == 0 {
					hosts["a"] = is(200, 200*ms)
				}
				if get("a"); tc.known != "" && n < 500 {
					get(tc.known)
				}
				if n == 3000 {
					guarded("a", "b")
					host = "c"
				}
			}
			guarded("a", "c")
			saved := row("http://a").Choice.Saved
			if saved < tc.saved || tc.saved == 0 && saved > .05 {
				t.Errorf("the plan for hedges to c predicts savings of %.2f, want %.2f", saved, tc.saved)
			}
		})
	}
}

// TestWithHedgeRequest_FailsAsItsHedgeIsDue: for the race detector. Primaries fail while their hedges are
// sent, are waited for, or answer.
func TestWithHedgeRequest_FailsAsItsHedgeIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 20*ms)
		for range 20 {
			hedgetest.Call(t, s, "http://first", "GET", 40*ms)
		}
		var hedges atomic.Int64
		rt := hedgehttp.Transport(s, roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "first" {
				time.Sleep(20 * ms)
				return nil, errors.New("no connection")
			}
			if err := wait(r.Context(), time.Duration(hedges.Add(1)%2)*80*ms); err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
		}), hedgehttp.WithHedgeRequest(func(_ int, r *http.Request) (*http.Request, error) {
			r.URL.Host = "second"
			return r, nil
		}))
		for range 500 {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://first", nil)
			if res, err := rt.RoundTrip(req); err == nil {
				res.Body.Close()
			}
		}
	})
}

// TestRule02_A404OfAnotherDestination has a answer late, and b, where the hedges go, with a status that
// from a would answer the request. Neither b's 404, nor a 404 of another path of a, is about a's resource.
func TestRule02_A404OfAnotherDestination(t *testing.T) {
	json := http.Header{"Content-Type": {"application/json"}}
	for _, tc := range []struct {
		name, mediaType string
		path            string // of the hedges; empty: they go to b
		a, b            reply
		from            string
		at              time.Duration
	}{
		{name: "gRPC", mediaType: "application/grpc+proto", a: is(200, 50*ms), b: is(404, 0), from: "a", at: 50 * ms},
		{name: "Connect", mediaType: "application/proto", a: is(200, 50*ms), b: is(404, 0), from: "a", at: 50 * ms},
		{name: "of the primary", mediaType: "application/proto", a: is(404, 15*ms), b: is(200, 50*ms),
			from: "a", at: 15 * ms},
		{name: "Twirp's not_found", mediaType: "application/protobuf", a: is(200, 50*ms), b: reply{status: 404, header: json},
			from: "a", at: 50 * ms},
		{name: "no RPC", mediaType: "text/plain", a: is(200, 50*ms), b: is(404, 0), from: "a", at: 50 * ms},
		{name: "410", mediaType: "text/plain", a: is(200, 50*ms), b: is(410, 0), from: "a", at: 50 * ms},
		{name: "another path", mediaType: "text/plain", path: "/other", a: is(200, 50*ms), from: "a", at: 50 * ms},
		{name: "both", mediaType: "text/plain", a: is(404, 50*ms), b: is(404, 0), from: "a", at: 50 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithReadOnlyMethods("/pkg.Svc/Get"))
			client := http.Client{Transport: hedgehttp.Transport(s, providers{"a": tc.a, "b": tc.b},
				hedgehttp.WithHedgeRequest(func(_ int, r *http.Request) (*http.Request, error) {
					if r.URL.Host = "b"; tc.path != "" {
						r.URL.Host, r.URL.Path = "a", tc.path
					}
					return r, nil
				}))}
			began := time.Now()
			res, err := client.Post("http://a/pkg.Svc/Get", tc.mediaType, strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			if res.Body.Close(); res.Request.URL.Host != tc.from || time.Since(began) != tc.at || s.Stats().Hedges == 0 {
				t.Errorf("%d of %s after %v and %d hedges, want %s's after %v", res.StatusCode, res.Request.URL.Host,
					time.Since(began), s.Stats().Hedges, tc.from, tc.at)
			}
		})
	}
}

// TestRule03_Failover has the first attempt of a GET fail at once, and its hedge answer. Then
// hedge.Do gets the answers and errors of a plain client.
func TestRule03_Failover(t *testing.T) {
	for _, tc := range []struct {
		name         string
		primary      reply
		mended, byDo bool
	}{
		{name: "no connection", primary: reply{}, mended: true, byDo: true},
		{name: "502", primary: is(502, 0), mended: true},
		{name: "503", primary: is(503, 0), mended: true},
		{name: "504", primary: is(504, 0), mended: true},
		{name: "503 with Retry-After", primary: reply{status: 503, header: http.Header{"Retry-After": {"1"}}}},
		{name: "429", primary: is(429, 0)},
		{name: "500", primary: is(500, 0)},
		{name: "404", primary: is(404, 0)},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, time.Hour, hedge.WithFailover())
			get := func(client http.Client) (int, error) {
				res, err := client.Get("http://example.test/users/1")
				if err != nil {
					return 0, err
				}
				return res.StatusCode, res.Body.Close()
			}
			f := &fake{script: script{tc.primary, is(200, 0)}}
			code, err := get(http.Client{Transport: hedgehttp.Transport(s, f)})
			time.Sleep(time.Minute)
			if (code == 200) != tc.mended || f.sent.Load() != 1+s.Stats().Failovers || f.open.Load() != 0 {
				t.Errorf("a hedged client got %d, %v from %d attempts, want one that is mended: %v; %d bodies are open",
					code, err, f.sent.Load(), tc.mended, f.open.Load())
			}

			f = &fake{script: f.script}
			code, err = hedge.Do(t.Context(), s, "t", "/s/Get", func(context.Context) (int, error) {
				return get(http.Client{Transport: f})
			})
			if mended := f.sent.Load() == 2; mended != tc.byDo || err != nil {
				t.Errorf("hedge.Do returned %d, %v after %d attempts, want one that is mended: %v",
					code, err, f.sent.Load(), tc.byDo)
			}
		})
	}
}
