package hedgehttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
	"github.com/grpchedge/hedge/stats"
)

// marked is a transport that notes the marks of each attempt.
type marked struct {
	http.RoundTripper
	mu    sync.Mutex
	marks []string
}

func (m *marked) RoundTrip(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	m.marks = append(m.marks, fmt.Sprintf("%s/%s/%s", req.Header.Get("Hedge-Attempt"),
		req.Header.Get("Hedge-Primary-In-Flight"), req.Header.Get("Grpc-Previous-Rpc-Attempts")))
	m.mu.Unlock()
	return m.RoundTripper.RoundTrip(req)
}

// TestRule05_MarksOfHTTPHedges: hedges have marks, and no other request has, also if it is made on
// behalf of a hedge, by a reverse proxy that copies the headers.
func TestRule05_MarksOfHTTPHedges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header http.Header // of the caller's request
		nodes  []http.HandlerFunc
		opts   []hedge.Option
		twice  bool // the transport is installed twice
		marks  []string
	}{
		{name: "a primary", nodes: []http.HandlerFunc{answers(5*ms, 200)}, marks: []string{"//"}},
		{name: "two hedges", nodes: []http.HandlerFunc{answers(25*ms, 200)}, marks: []string{"//", "1/1/", "2/1/"}},
		{name: "a primary that has failed", nodes: []http.HandlerFunc{answers(15*ms, 503)},
			marks: []string{"//", "1/1/", "2//"}},
		{name: "gRPC", header: http.Header{"Content-Type": {"application/grpc"}},
			nodes: []http.HandlerFunc{answers(15*ms, 500)}, marks: []string{"//", "1/1/1", "2//2"}},
		{name: "on behalf of a hedge", header: http.Header{"Hedge-Attempt": {"3"}, "Hedge-Primary-In-Flight": {"1"}},
			nodes: []http.HandlerFunc{answers(25*ms, 200)}, marks: []string{"//"}},
		{name: "the same, not hedged", header: http.Header{"Hedge-Attempt": {"3"}}, opts: []hedge.Option{hedge.WithOff(true)},
			nodes: []http.HandlerFunc{answers(25*ms, 200)}, marks: []string{"//"}},
		{name: "marks without a number", header: http.Header{"Hedge-Attempt": {"0"}, "Hedge-Primary-In-Flight": {""},
			"Grpc-Previous-Rpc-Attempts": {"1"}}, nodes: []http.HandlerFunc{answers(15*ms, 200)}, marks: []string{"//1", "1/1/1"}},
		{name: "installed twice", nodes: []http.HandlerFunc{answers(25*ms, 200)}, twice: true,
			marks: []string{"//", "1/1/", "1/1/", "2/1/", "2/1/"}},
		{name: "a retry by gRPC", header: http.Header{"Grpc-Previous-Rpc-Attempts": {"1"}},
			nodes: []http.HandlerFunc{answers(5*ms, 200)}, marks: []string{"//1"}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			base := &marked{RoundTripper: inMemory(t, false, tc.nodes...)}
			rt := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms, tc.opts...), base)
			if tc.twice {
				rt = hedgehttp.Transport(hedgetest.Fixed(t, 10*ms), rt)
			}
			proxy := &httputil.ReverseProxy{Transport: rt,
				Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "backend"}) }}
			req := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			for key, values := range tc.header {
				req.Header[key] = slices.Clone(values)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			proxy.ServeHTTP(httptest.NewRecorder(), req.WithContext(ctx))
			if slices.Sort(base.marks); !slices.Equal(base.marks, tc.marks) {
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
		base := inMemory(t, false, full.Handler(answers(time.Hour, 200)).ServeHTTP, full.Handler(answers(0, 200)).ServeHTTP,
			answers(3*ms, 201))
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host", nil)
		began := time.Now()
		got := outcome(t, hedgehttp.Transport(s, base), req)
		c := s.Stats()
		if took := time.Since(began); got != "201 " || took != 13*ms || full.Shed() != 1 ||
			c.Hedges != 2 || c.PushedBack != 1 {
			t.Errorf("%q after %v, %d hedges turned away, %+v; want 201 after 13 ms", got, took, full.Shed(), c)
		}
	})
}

// TestTransport_SameBackend: hedges to the address of their primary are counted, and shown on the page.
// Transports of hedges or of all attempts may choose another address. The server answers hedges alone,
// which are sent when it has their primary.
func TestTransport_SameBackend(t *testing.T) {
	for _, tc := range []struct {
		name         string
		h2           bool
		base, hedges func(here, there http.RoundTripper) http.RoundTripper // of both; of WithHedgeTransport
		made         bool                                                  // WithHedgeRequest moves hedges
		hook         bool                                                  // the caller has one
		same         int64
	}{
		{name: "HTTP/1.1", same: 30},
		{name: "HTTP/2", h2: true, same: 30},
		{name: "own connections", h2: true, same: 30,
			hedges: func(here, _ http.RoundTripper) http.RoundTripper { return here.(*http.Transport).Clone() }},
		{name: "the caller's hook", hook: true, same: 30},
		{name: "the base transport turns", base: func(here, there http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Hedge-Attempt") != "" {
					return there.RoundTrip(r)
				}
				return here.RoundTrip(r)
			})
		}},
		{name: "WithHedgeTransport", hedges: func(_, there http.RoundTripper) http.RoundTripper { return there }},
		{name: "WithHedgeRequest", made: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			primary := make(chan struct{})
			serve := func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Hedge-Attempt") == "" {
					primary <- struct{}{}
					<-r.Context().Done()
				}
			}
			server, other := newServer(t, tc.h2, serve), newServer(t, tc.h2, serve)
			move := func(_ int, r *http.Request) (*http.Request, error) {
				r.URL.Host = other.Listener.Addr().String()
				return r, nil
			}
			there := roundTrip(func(r *http.Request) (*http.Response, error) {
				r, _ = move(0, r.Clone(r.Context()))
				return other.base.RoundTrip(r)
			})
			late := func(rt http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.Header.Get("Hedge-Attempt") != "" {
						<-primary
					}
					return rt.RoundTrip(r)
				})
			}
			base, opts := http.RoundTripper(server.base), []hedgehttp.Option(nil)
			if tc.hedges != nil {
				rt := tc.hedges(base, there)
				t.Cleanup((&http.Client{Transport: rt}).CloseIdleConnections)
				opts = append(opts, hedgehttp.WithHedgeTransport(late(rt)))
			}
			if tc.made {
				opts = append(opts, hedgehttp.WithHedgeRequest(move))
			}
			if tc.base != nil {
				base = tc.base(base, there)
			}
			s := hedgetest.Fixed(t, ms, hedge.WithMaxHedges(1))
			rt, connected, want := hedgehttp.Transport(s, late(base), opts...), 0, 0
			for range 30 {
				ctx := t.Context()
				if tc.hook {
					want++
					ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected++ }})
				}
				if got := read(rt.RoundTrip(server.request(ctx, "GET", "/", nil))); got[:3] != "200" {
					t.Fatal(got)
				}
			}
			m, page := s.Methods()[0], httptest.NewRecorder()
			debug.Handler(s).ServeHTTP(page, httptest.NewRequest("GET", "/", nil))
			if m.SameBackend != tc.same || connected != want {
				t.Errorf("%d hedges to the address of their primary, want %d; the caller's hook was called %d times, want %d",
					m.SameBackend, tc.same, connected, want)
			}
			const note = "Hedges go to the address of the primary."
			if strings.Contains(page.Body.String(), note) != (tc.same > 0) {
				t.Errorf("the page must have %q: %v: %s", note, tc.same > 0, page.Body)
			}
		})
	}
}

// TestRule07_HTTPServersThatCountResets sends HTTP requests over one HTTP/2 connection to servers that
// cut it for resets. Plain net/http has no failure. A server that gives the reason cuts once, and few
// requests fail. A server that gives none cuts rarely after the first minute.
func TestRule07_HTTPServersThatCountResets(t *testing.T) {
	longtest.Simulation(t)
	const each = 10 * ms
	for _, tc := range []struct {
		name    string
		limit   testserver.Limit
		minutes int
		cuts    int64 // at most
		failed  int   // of the requests after the first minute, at most
	}{
		{name: "a reason", limit: testserver.Limit{Resets: 40, Per: time.Minute, Close: testserver.CloseCalm}, minutes: 2,
			cuts: 1},
		{name: "no reason", limit: testserver.LimitLikeApache,
			minutes: 3, cuts: 12, failed: 4},
	} {
		for _, hedged := range []bool{false, true} {
			hedgetest.Run(t, fmt.Sprintf("%s, hedged %t", tc.name, hedged), func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, DrawByID: true, CountsOnly: true,
					Latency: testserver.LogNormal(110*ms, 50*ms), Limit: &tc.limit})
				base := h2c(cluster)
				defer base.CloseIdleConnections()
				rt := http.RoundTripper(base)
				if hedged {
					rt = hedgehttp.Transport(hedgetest.All(t, hedge.WithBudgetPercent(50), hedge.WithTrigger(hedge.Fixed(100*ms)),
						hedge.WithReadOnlyMethods("/hedgetest.TestService/*")), base)
				}
				minute := int(time.Minute / each)
				failed := make([]bool, tc.minutes*minute)
				var requests sync.WaitGroup
				for id := range failed {
					requests.Go(func() { failed[id] = grpcRequest(t.Context(), rt, uint64(id)+1) != nil })
					time.Sleep(each)
				}
				requests.Wait()
				first, later := count(failed[:minute]), count(failed[minute:])
				cuts := cluster.ConnCounts().Cuts
				t.Logf("%d cuts, %d requests fail in the first minute, %d of %d later", cuts, first, later, len(failed)-minute)
				if hedged && (cuts == 0 || cuts > tc.cuts || later > tc.failed) || !hedged && first+later+int(cuts) > 0 {
					t.Errorf("want at most %d cuts, and at most %d failed requests after the first minute; none without hedging",
						tc.cuts, tc.failed)
				}
				synctest.Wait()
			})
		}
	}
}

// h2c returns a transport that sends HTTP/2 in plain text to the first backend of a cluster.
func h2c(cluster *testserver.Cluster) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return cluster.Dial(ctx, cluster.Address(0))
	}}
}

// grpcRequest makes a unary call of gRPC as an HTTP request.
func grpcRequest(ctx context.Context, rt http.RoundTripper, id uint64) error {
	message, err := proto.Marshal(&testpb.Request{Id: id})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://host/hedgetest.TestService/Unary",
		bytes.NewReader(frame(0, message)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(res.Body)
	if got := res.Trailer.Get("Grpc-Status"); err != nil || len(reply) < 5 || got != "0" {
		return fmt.Errorf("status %q, %d bytes, %w", got, len(reply), err)
	}
	return nil
}

func count(all []bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

func TestGuard_StatusInsideA200(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want stats.GuardReason
	}{
		"resource_exhausted": {`{"error":{"code":"resource_exhausted"}}`, stats.GuardExhausted},
		"unavailable":        {`{"error":{"code":"unavailable"}}`, stats.GuardNone},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithReadOnlyMethods("/pkg.Svc/Get"), hedge.WithMaxHedges(1))
			good := serves(string(frame(0, []byte("message"))), "Content-Type", "application/connect+json")
			bad := serves(string(frame(2, []byte(tc.body))), "Content-Type", "application/connect+json")
			var attempts []http.HandlerFunc
			for range 40 {
				attempts = append(attempts, after(20*ms, good), after(ms, bad))
			}
			rt := hedgehttp.Transport(s, inMemory(t, true, attempts...))
			reason := stats.GuardNone
			for range 20 {
				attemptOf(rt, "POST", connectHeader)
				time.Sleep(time.Second)
				if g := s.Methods()[0].Guard.Reason; g != stats.GuardNone {
					reason = g
					break
				}
			}
			if reason != tc.want {
				t.Errorf("the guard's reason is %q after %d hedges, want %q", reason, s.Stats().Hedges, tc.want)
			}
		})
	}
}
