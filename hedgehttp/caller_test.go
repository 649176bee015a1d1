package hedgehttp_test

import (
	"context"
	"errors"
	"fmt"
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
)

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

// TestTransport_ALosersBodyIsClosedOnce, also if the loser reads its body for the answer.
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
