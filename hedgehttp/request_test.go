package hedgehttp_test

import (
	"bytes"
	"context"
	"errors"
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

// TestTransport_PanicsOfOptions: if a function of an option panics, the bodies of the request and of
// all responses are closed.
func TestTransport_PanicsOfOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		opt  hedge.Option
		http hedgehttp.Option
	}{
		"WithName":      {http: hedgehttp.WithName(func(*http.Request) string { panic("user") })},
		"WithFirstByte": {http: hedgehttp.WithFirstByte(func(*http.Response) bool { panic("user") })},
		"WithHedgeRequest": {http: hedgehttp.WithHedgeRequest(
			func(int, *http.Request) (*http.Request, error) { panic("user") })},
		"WithAcceptable": {opt: hedge.WithAcceptable(
			func(context.Context, string, any, error) bool { panic("user") })},
		"WithClass": {opt: hedge.WithClass(func(context.Context, string, any) string { panic("user") })},
	} {
		for mode, more := range map[string]hedge.Option{"hedged": nil, "warm-up": hedge.WithWarmup(100, 0)} {
			if mode == "warm-up" && (name == "WithAcceptable" || name == "WithHedgeRequest") {
				continue
			}
			hedgetest.Run(t, name+" "+mode, func(t *testing.T) {
				s := hedgetest.Fixed(t, 10*ms, tc.opt, more)
				base := &fake{script: script{is(200, 30*ms), is(200, 100*ms), is(200, 100*ms)}}
				body := &closing{Reader: strings.NewReader("body")}
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host", body)
				req.ContentLength = 4
				if got := outcome(t, hedgehttp.Transport(s, base, tc.http), req); got != "panic: user" {
					t.Errorf("RoundTrip returned %s, want the panic", got)
				}
				time.Sleep(time.Second)
				if base.open.Load() != 0 || body.closed.Load() != 1 {
					t.Errorf("%d responses are open, the request's body was closed %d times", base.open.Load(), body.closed.Load())
				}
			})
		}
	}
}

// TestTransport_LosersLeaveTheCaller: after RoundTrip a caller may change its request, which the race detector
// notices if a loser reads it, and use its context for something else. A hedge sees the context's values
// while its request lasts.
func TestTransport_LosersLeaveTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := &watched{Context: context.WithValue(t.Context(), inContext{}, "value")}
		before, ended := make(chan any, 1), make(chan struct{})
		late := roundTrip(func(req *http.Request) (*http.Response, error) {
			defer close(ended)
			before <- req.Context().Value(inContext{})
			time.Sleep(50 * ms) // it ignores its context
			req.Context().Deadline()
			req.Context().Value("another key")
			return &http.Response{StatusCode: 404, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})
		rt := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), &fake{script: script{is(200, 20*ms)}},
			hedgehttp.WithHedgeTransport(late))
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://host", nil)
		outcome(t, rt, req)
		ctx.returned.Store(true)
		for range 100 {
			req.Method, req.URL.RawQuery = "POST", "edited"
			req.Header.Set("Edited", "yes")
			time.Sleep(ms)
		}
		if <-ended; <-before != "value" || ctx.late.Load() != 0 {
			t.Errorf("the hedge misses the context's value, or has used the context %d times after the call", ctx.late.Load())
		}
	})
}

type inContext struct{}

// watched counts its uses after the call has returned.
type watched struct {
	context.Context
	returned atomic.Bool
	late     atomic.Int64
}

func (w *watched) note() {
	if w.returned.Load() {
		w.late.Add(1)
	}
}

func (w *watched) Value(key any) any           { w.note(); return w.Context.Value(key) }
func (w *watched) Deadline() (time.Time, bool) { w.note(); return w.Context.Deadline() }

// TestTransport_TrailersOfAWaitingResponse: the trailers of a response that waits for another attempt come
// when its reader has read the body, as without hedging, although they may be there before.
func TestTransport_TrailersOfAWaitingResponse(t *testing.T) {
	fails := after(20*ms, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Sum")
		w.WriteHeader(503)
		w.(http.Flusher).Flush()
		w.Header().Set("Sum", "17")
		w.Header().Set(http.TrailerPrefix+"Unannounced", "18")
	})
	looks := hedge.WithAcceptable(func(_ context.Context, _ string, reply any, _ error) bool {
		return reply.(*http.Response).Trailer.Get("Sum") == ""
	})
	for _, http2 := range []bool{false, true} {
		hedgetest.Run(t, fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			var got []string
			for _, rt := range []http.RoundTripper{
				inMemory(t, http2, fails),
				hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), looks),
					inMemory(t, http2, fails, after(50*ms, fails))),
			} {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host", nil)
				res, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				before := fmt.Sprint(res.Header["Attempt"], res.Trailer)
				got = append(got, before+read(res, nil))
			}
			if got[1] != got[0] {
				t.Errorf("the response has %s, want %s, as a plain one", got[1], got[0])
			}
		})
	}
}

// TestTransport_APanicInAWaitingBody: the reader of a response gets the panic of its body, also if the
// body was read ahead. The body of a loser is closed once, and its panic is nobody's.
func TestTransport_APanicInAWaitingBody(t *testing.T) {
	for _, tc := range []struct {
		name  string
		s     *hedge.Scheduler
		hedge error
		want  string
	}{
		{name: "plain", want: "panic: body"},
		{name: "the primary's", s: hedgetest.Fixed(t, 10*ms), hedge: errors.New("fails"), want: "panic: body"},
		{name: "a loser's", s: hedgetest.Fixed(t, 10*ms), want: "200 "},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			body := &closing{Reader: atEnd(func() { panic("body") })}
			base := roundTrip(func(req *http.Request) (*http.Response, error) {
				if req.Header.Get("Hedge-Attempt") == "" {
					time.Sleep(20 * ms)
					return &http.Response{StatusCode: 503, Body: body, Request: req}, nil
				}
				time.Sleep(50 * ms)
				return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, tc.hedge
			})
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host", nil)
			got := outcome(t, hedgehttp.Transport(tc.s, base), req)
			if time.Sleep(time.Second); got != tc.want || body.closed.Load() != 1 {
				t.Errorf("the caller got %s, and the body was closed %d times, want %s and once", got, body.closed.Load(), tc.want)
			}
		})
	}
}

func TestTransport_ALosersBodyIsClosedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := io.Pipe()
		body := &closing{Reader: r}
		base := roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("Hedge-Attempt") == "" {
				return &http.Response{StatusCode: 200, Header: jsonLines(), Body: body, Request: req}, nil
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("hedge")), Request: req}, nil
		})
		req, _ := http.NewRequestWithContext(t.Context(), "QUERY", "http://host", nil)
		got := outcome(t, hedgehttp.Transport(hedgetest.Fixed(t, 10*ms), base), req)
		if synctest.Wait(); got != "200 hedge" || body.closed.Load() != 1 {
			t.Errorf("the response is %s, and the loser's body was closed %d times, want once", got, body.closed.Load())
		}
	})
}
