package walk_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/walk"
	testpb "github.com/grpchedge/hedge/proto"
)

const delay = 10 * time.Millisecond

// slowPrimary answers hedges at once, and primaries after an hour if a call is to be hedged.
func slowPrimary(hedged bool) func(number int) time.Duration {
	return func(number int) time.Duration {
		if hedged && number == 0 {
			return time.Hour
		}
		return 0
	}
}

// overGRPC walks through a call of a new connection's second use: state of the target exists.
func overGRPC(t *testing.T, scene string, hedged bool, call func(context.Context, testpb.TestServiceClient) error) {
	synctest.Test(t, func(t *testing.T) {
		slow := false
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
			return testserver.Plan{Delay: slowPrimary(slow)(a.Number)}
		}})
		conn := cluster.ClientT(t, hedgetest.Interceptors(hedgetest.Fixed(t, delay))...)
		client := testpb.NewTestServiceClient(conn)
		if err := call(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		slow = hedged
		walked(t, scene, func() error { return call(t.Context(), client) })
	})
}

// walked prints the walk through f and what it left running.
func walked(t *testing.T, scene string, f func() error) {
	walk.Begin()
	err := f()
	synctest.Wait()
	walk.End(scene)
	if err != nil {
		t.Errorf("%s: %v", scene, err)
	}
}

func unary(ctx context.Context, c testpb.TestServiceClient) error {
	_, err := c.Unary(ctx, &testpb.Request{})
	return err
}

func stream(ctx context.Context, c testpb.TestServiceClient) error {
	st, err := c.ServerStream(ctx, &testpb.Request{}, grpc.WaitForReady(false))
	for err == nil {
		_, err = st.Recv()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

func TestGRPC(t *testing.T) {
	overGRPC(t, "unary fast", false, unary)
	overGRPC(t, "unary hedged", true, unary)
	overGRPC(t, "stream fast", false, stream)
	overGRPC(t, "stream hedged", true, stream)
}

// base is a server of HTTP whose first attempt may be slow.
type base struct {
	sent    int
	hedged  bool
	latency func() time.Duration // nil: slowPrimary
}

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	b.sent++
	latency := slowPrimary(b.hedged)(b.sent - 1)
	if b.latency != nil {
		latency = b.latency()
	}
	select {
	case <-time.After(latency):
		return &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader("body"))}, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

func TestHTTP(t *testing.T) {
	for scene, hedged := range map[string]bool{"HTTP fast": false, "HTTP hedged": true} {
		synctest.Test(t, func(t *testing.T) {
			b := &base{}
			client := &http.Client{Transport: hedgehttp.Transport(hedgetest.Fixed(t, delay), b)}
			if err := get(client); err != nil {
				t.Fatal(err)
			}
			b.sent, b.hedged = 0, hedged
			walked(t, scene, func() error { return get(client) })
		})
	}
}

func get(client *http.Client) error {
	resp, err := client.Get("http://example/path")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// installed walks through a call that needs a hedge, as README.md installs them: default options, and a
// minute of 100 calls a second before, so that the plan spends the budget. Latencies have a long tail,
// and in it is that call's primary.
func installed(t *testing.T, scene string, setLatency func(func() time.Duration), call func() error) {
	var attempts, slow atomic.Int64
	setLatency(func() time.Duration {
		_, part := math.Modf(math.Phi * float64(attempts.Add(1)))
		if slow.Swap(0) > 0 {
			part = 0.99
		}
		return time.Duration(float64(2*time.Millisecond) * math.Pow(1-part, -0.8))
	})
	for tick := time.NewTicker(10 * time.Millisecond); attempts.Load() < 6000; <-tick.C {
		go func() {
			if err := call(); err != nil {
				t.Error(err)
			}
		}()
	}
	time.Sleep(100 * time.Millisecond)
	if err := call(); err != nil { // makes a new plan, if one is due
		t.Fatal(err)
	}
	slow.Store(1)
	walked(t, scene, call)
}

func TestInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 3})
		s := hedgetest.New(t, hedge.WithReadOnlyMethods("/hedgetest.TestService/*"))
		client := testpb.NewTestServiceClient(cluster.ClientT(t, interceptor.DialOptions(s,
			grpc.WithDefaultServiceConfig(balancer.ServiceConfig))...))
		installed(t, "unary hedged, README", func(latency func() time.Duration) {
			cluster.SetScript(func(testserver.Attempt) testserver.Plan { return testserver.Plan{Delay: latency()} })
		}, func() error { return unary(t.Context(), client) })
		if c := s.Stats(); c.Hedges == 0 || c.HedgeWins == 0 {
			t.Errorf("no hedge has won: %+v", c)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b, s := &base{}, hedgetest.All(t)
		client := &http.Client{Transport: hedgehttp.Transport(s, b)}
		installed(t, "HTTP hedged, README", func(latency func() time.Duration) { b.latency = latency },
			func() error { return get(client) })
		if c := s.Stats(); c.Hedges == 0 || c.HedgeWins == 0 {
			t.Errorf("no hedge has won: %+v", c)
		}
	})
}

func TestUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		hedgetest.Call(t, s, "target", "/pkg.Svc/Get", time.Millisecond)
		walked(t, "update", func() error { return s.Update(hedge.WithAllMethods(), hedge.WithMaxHedges(1)) })
	})
}

// TestPlan walks from the end of a call, which is a sample, to the plan that is made from it.
func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		for i := range 5000 {
			d := 5 * time.Millisecond
			if i%20 == 0 {
				d *= 10
			}
			hedgetest.Call(t, s, "target", "/pkg.Svc/Get", d)
		}
		time.Sleep(10 * time.Second)
		walked(t, "sample to plan", func() error {
			hedgetest.Call(t, s, "target", "/pkg.Svc/Get", 5*time.Millisecond)
			return nil
		})
	})
}
