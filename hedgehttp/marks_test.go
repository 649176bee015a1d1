package hedgehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/shed"
)

// nodes is a transport whose attempts go to one node after the other, in memory.
type nodes struct {
	mu    sync.Mutex
	all   []http.Handler
	marks []string // of each attempt
}

func (n *nodes) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	at := n.all[len(n.marks)%len(n.all)]
	n.marks = append(n.marks, fmt.Sprintf("%s/%s/%s", req.Header.Get("Hedge-Attempt"),
		req.Header.Get("Hedge-Primary-In-Flight"), req.Header.Get("Grpc-Previous-Rpc-Attempts")))
	n.mu.Unlock()
	answer, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		at.ServeHTTP(answer, req)
	}()
	select {
	case <-done:
		res := answer.Result()
		res.Request = req
		return res, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// node returns a node that answers after a while.
func node(after time.Duration, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait(r.Context(), after) == nil {
			w.WriteHeader(status)
		}
	})
}

// TestRule05_MarksOfHTTPHedges: hedges have marks, and no other request has, also if it is made on
// behalf of a hedge, by a reverse proxy that copies the headers.
func TestRule05_MarksOfHTTPHedges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header http.Header // of the caller's request
		nodes  []http.Handler
		opts   []hedge.Option
		marks  []string
	}{
		{name: "a primary", nodes: []http.Handler{node(5*ms, 200)}, marks: []string{"//"}},
		{name: "two hedges", nodes: []http.Handler{node(25*ms, 200)}, marks: []string{"//", "1/1/", "2/1/"}},
		{name: "a primary that has failed", nodes: []http.Handler{node(15*ms, 503), node(50*ms, 200)},
			marks: []string{"//", "1/1/", "2//"}},
		{name: "gRPC", header: http.Header{"Content-Type": {"application/grpc"}},
			nodes: []http.Handler{node(15*ms, 500)}, marks: []string{"//", "1/1/1", "2//2"}},
		{name: "on behalf of a hedge", header: http.Header{"Hedge-Attempt": {"3"}, "Hedge-Primary-In-Flight": {"1"}},
			nodes: []http.Handler{node(25*ms, 200)}, marks: []string{"//"}},
		{name: "the same, not hedged", header: http.Header{"Hedge-Attempt": {"3"}}, opts: []hedge.Option{hedge.WithOff(true)},
			nodes: []http.Handler{node(25*ms, 200)}, marks: []string{"//"}},
		{name: "a retry by gRPC", header: http.Header{"Grpc-Previous-Rpc-Attempts": {"1"}},
			nodes: []http.Handler{node(5*ms, 200)}, marks: []string{"//1"}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			base := &nodes{all: tc.nodes}
			s := hedgetest.Fixed(t, 10*ms, tc.opts...)
			proxy := &httputil.ReverseProxy{Transport: hedgehttp.Transport(s, base),
				Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "backend"}) }}
			req := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			for key, values := range tc.header {
				req.Header[key] = slices.Clone(values)
			}
			proxy.ServeHTTP(httptest.NewRecorder(), req)
			synctest.Wait()
			if !slices.Equal(base.marks, tc.marks) {
				t.Errorf("the attempts have the marks %q, want %q", base.marks, tc.marks)
			}
			for key, values := range tc.header {
				if !slices.Equal(req.Header[key], values) {
					t.Errorf("the caller's header %s is %q, want %q", key, req.Header[key], values)
				}
			}
		})
	}
}

// TestShed_HTTP: a busy server turns a hedge away, and the next hedge goes to another one at once. It
// costs a tenth.
func TestShed_HTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, err := shed.New(shed.WithMaxHedges(0))
		if err != nil {
			t.Fatal(err)
		}
		base := &nodes{all: []http.Handler{full.Handler(node(time.Hour, 200)), full.Handler(node(0, 200)),
			node(3*ms, 201)}}
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host", nil)
		began := time.Now()
		got := outcome(t, hedgehttp.Transport(s, base), req)
		c := s.Stats()
		if took := time.Since(began); got != "201 " || took != 13*ms || full.Shed() != 1 || c.Hedges != 2 || c.PushedBack != 1 {
			t.Errorf("%q after %v, %d hedges turned away, %+v; want 201 after 13 ms", got, took, full.Shed(), c)
		}
	})
}

// TestTransport_OneConnection: over HTTP/2 hedges use the connection of their primary, which is
// reported, unless they have a transport of their own.
func TestTransport_OneConnection(t *testing.T) {
	for _, tc := range []struct {
		name          string
		h2, own, want bool
	}{{name: "HTTP/1.1"}, {name: "HTTP/2", h2: true, want: true}, {name: "HTTP/2, own connections", h2: true, own: true}} {
		t.Run(tc.name, func(t *testing.T) {
			server := newServer(t, tc.h2, hello)
			server.hangs.Store(true)
			scheduler, own := hedgetest.Fixed(t, ms, hedge.WithMaxHedges(1)), hedgehttp.Option(nil)
			if tc.own {
				another := server.base.Clone()
				t.Cleanup(another.CloseIdleConnections)
				own = hedgehttp.WithHedgeTransport(another)
			}
			rt := hedgehttp.Transport(scheduler, server.base, own)
			for n := range 30 {
				if got := read(rt.RoundTrip(server.request(t.Context(), "GET", fmt.Sprint("/", n), nil))); got[:3] != "200" {
					t.Fatal(got)
				}
			}
			if m := scheduler.Methods()[0]; m.SingleConnection != tc.want {
				t.Errorf("single connection %v after %d hedges, want %v", m.SingleConnection, m.Hedges, tc.want)
			}
		})
	}
}
