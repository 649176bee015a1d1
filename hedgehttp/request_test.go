package hedgehttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestTransport_TheRequestOfALosersResponse: the function of WithFirstByte sees the response of a loser
// after RoundTrip has returned. The race detector finds a read of the caller's request.
func TestTransport_TheRequestOfALosersResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("Hedge-Attempt") != "" { // it ignores its context
				time.Sleep(50 * ms)
			} else if err := wait(req.Context(), 20*ms); err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: 200, Request: req, Body: io.NopCloser(strings.NewReader("body"))}, nil
		})
		var late atomic.Bool
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host/path", nil)
		rt := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), base,
			hedgehttp.WithFirstByte(func(res *http.Response) bool {
				late.Store(late.Load() || res.Request == req && time.Now().Nanosecond() > int(40*ms))
				return res.Request.URL.Path == "/stream"
			}))
		res, err := rt.RoundTrip(req)
		if err != nil || res.Request != req {
			t.Fatalf("the response's request is not the caller's, %v", err)
		}
		res.Body.Close()
		for range 100 {
			req.URL.Path = "/edited"
			time.Sleep(ms)
		}
		if late.Load() {
			t.Error("the function got the caller's request with the response of a loser")
		}
	})
}

// TestWithHedgeRequest_Host sends hedges to b: the Host header is b's, as of a plain request to b, unless the
// function or the caller has set another one.
func TestWithHedgeRequest_Host(t *testing.T) {
	for _, tc := range []struct {
		name           string
		caller, hedges string // Host; empty: not set
		want           string
	}{
		{name: "only the URL's", want: "b"},
		{name: "by the function", hedges: "name", want: "name"},
		{name: "by the function, a's", hedges: "a", want: "a"},
		{name: "by the caller", caller: "name", want: "name"},
		{name: "by both", caller: "name", hedges: "other", want: "other"},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			base := inMemory(t, false, never, func(_ http.ResponseWriter, r *http.Request) {
				if r.Host != tc.want {
					t.Errorf("the Host header is %q, want %q", r.Host, tc.want)
				}
			})
			rt := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), base,
				hedgehttp.WithHedgeRequest(func(_ int, r *http.Request) (*http.Request, error) {
					if r.URL.Host = "b"; tc.hedges != "" {
						r.Host = tc.hedges
					}
					return r, nil
				}))
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a/", nil)
			if tc.caller != "" {
				req.Host = tc.caller
			}
			if res, err := rt.RoundTrip(req); err != nil || res.StatusCode != 200 {
				t.Errorf("%v, %v, want the hedge's 200", res, err)
			}
		})
	}
}

// TestWithHedgeRequest_SentAgain: package net/http sends a request again if its connection was closed while
// idle. It sends the body of the hedge, not of the caller's request, or fails.
func TestWithHedgeRequest_SentAgain(t *testing.T) {
	again := func(body string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	}
	for _, tc := range []struct {
		name string
		edit func(*http.Request) *http.Request
		want string // empty: there is no body to send again
	}{
		{name: "the caller's body", edit: func(r *http.Request) *http.Request { return r }, want: "body"},
		{name: "another body", edit: func(r *http.Request) *http.Request {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("other")), 5
			return r
		}},
		{name: "another body with GetBody", edit: func(r *http.Request) *http.Request {
			r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader("other")), 5, again("other")
			return r
		}, want: "other"},
		{name: "another request", edit: func(*http.Request) *http.Request {
			r, _ := http.NewRequest("POST", "http://b", bytes.NewReader([]byte("other")))
			return r
		}, want: "other"},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			base := roundTrip(func(req *http.Request) (*http.Response, error) {
				if req.Header.Get("Hedge-Attempt") == "" {
					<-req.Context().Done()
					return nil, req.Context().Err()
				}
				io.Copy(io.Discard, req.Body)
				if req.GetBody == nil {
					return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
				}
				body, err := req.GetBody()
				return &http.Response{StatusCode: 200, Body: body}, err
			})
			rt := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, hedge.WithReadOnlyMethods("POST /"), hedge.WithMaxHedges(1)), base,
				hedgehttp.WithHedgeRequest(func(_ int, r *http.Request) (*http.Request, error) { return tc.edit(r), nil }))
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://a/", strings.NewReader("body"))
			res, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := io.ReadAll(res.Body); string(got) != tc.want {
				t.Errorf("%q is sent again, want %q", got, tc.want)
			}
		})
	}
}

// TestTransport_AFailedPrimary fails after 20 ms, while its hedge gets no answer. It waits for the hedge as
// long as the hedge may need, by the latencies that are known.
func TestTransport_AFailedPrimary(t *testing.T) {
	type row struct {
		name   string
		status int           // of the primary; 0: an error
		taught time.Duration // the longest latency that is known; 0: none is
		hedge  time.Duration // when the hedge answers
		opts   []hedge.Option
		want   string
		at     time.Duration // at most
	}
	rows := []row{
		{name: "an error", taught: 100 * ms, hedge: time.Hour, want: "no connection", at: 230 * ms},
		{name: "503", status: 503, taught: 100 * ms, hedge: time.Hour, want: "503 0", at: 230 * ms},
		{name: "401", status: 401, taught: 5 * ms, hedge: time.Hour, want: "401 0", at: 41 * ms},
		{name: "a rejected answer", status: 203, taught: 100 * ms, hedge: time.Hour, opts: []hedge.Option{acceptable},
			want: "203 0", at: 230 * ms},
		{name: "within the tail", status: 503, taught: 100 * ms, hedge: 180 * ms, want: "200 1", at: 190 * ms},
		{name: "nothing is known", status: 503, hedge: 59 * time.Second, want: "200 1", at: 60 * time.Second},
		{name: "nothing is known, and no answer comes", status: 503, hedge: time.Hour, want: "503 0", at: 61 * time.Second},
		{name: "a failover", status: 503, taught: 100 * ms, hedge: time.Hour, want: "503 0", at: 230 * ms,
			opts: []hedge.Option{hedge.WithFailover(), hedge.WithWarmup(1<<30, time.Hour)}},
	}
	for _, status := range []int{400, 405, 406, 413, 414, 415, 416, 417, 422} {
		rows = append(rows, row{name: fmt.Sprint(status), status: status, hedge: time.Hour, want: fmt.Sprint(status, " 0"),
			at: 20 * ms})
	}
	for _, tc := range rows {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, append(tc.opts, hedge.WithMaxHedges(1))...)
			base := &fake{script: script{is(tc.status, 20*ms), is(200, tc.hedge)}}
			rt := hedgehttp.Transport(s, base)
			get := func(rt http.RoundTripper) string {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host", nil)
				return outcome(t, rt, req)
			}
			for range 20 {
				if tc.taught > 0 {
					get(hedgehttp.Transport(s, roundTrip(func(req *http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, wait(req.Context(), tc.taught)
					})))
				}
			}
			began := time.Now()
			if got := get(rt); got != tc.want || time.Since(began) > tc.at {
				t.Errorf("the response is %s after %v, want %s after %v at most", got, time.Since(began), tc.want, tc.at)
			}
			if synctest.Wait(); base.open.Load() != 0 {
				t.Errorf("%d bodies are open", base.open.Load())
			}
		})
	}
}

// TestTransport_AFailedPrimaryKeepsTheOnlyConnection: a 503 with a large or an endless body holds the connection
// for which its hedge waits. The race ends.
func TestTransport_AFailedPrimaryKeepsTheOnlyConnection(t *testing.T) {
	fails := func(body func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
		return after(20*ms, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
			w.(http.Flusher).Flush()
			body(w, r)
		})
	}
	for name, primary := range map[string]http.HandlerFunc{
		"large": fails(func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.Repeat([]byte("x"), kept+100<<10)) }),
		"endless": fails(func(w http.ResponseWriter, r *http.Request) {
			for wait(r.Context(), 10*ms) == nil {
				w.Write([]byte("x"))
				w.(http.Flusher).Flush()
			}
		}),
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			base := inMemory(t, false, primary, answers(0, 200))
			base.MaxConnsPerHost = 1
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://host", nil)
			began := time.Now()
			res, err := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), base).RoundTrip(req)
			if took := time.Since(began); err != nil || res.StatusCode != 503 || took > 61*time.Second {
				t.Fatalf("%v, %v after %v, want the 503 within a minute", res, err, took)
			}
			if n, err := io.CopyN(io.Discard, res.Body, 100); err != nil {
				t.Errorf("%v after %d bytes of the body", err, n)
			}
			res.Body.Close()
		})
	}
}

// TestTransport_APlainClientBeside: a plain client sends a POST on the connection of a loser, which package net/http
// has put into its pool before it notices the end of the loser's context. The POST is served.
func TestTransport_APlainClientBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inMemory(t, false, answers(20*ms, 204), answers(10*ms+500*time.Microsecond, 200), answers(50*ms, 201))
		beside := make(chan string, 1)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(error) {
			go func() { beside <- attemptOf(base, "POST", nil) }()
			time.Sleep(ms)
		}})
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://host", nil)
		res, err := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), base).RoundTrip(req)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%v, %v, want the hedge's 200", res, err)
		}
		res.Body.Close()
		if got := <-beside; got != "201 2" {
			t.Errorf("the response of the plain client is %s, want 201 2", got)
		}
	})
}
