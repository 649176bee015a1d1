package call_test

import (
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestThrottle_CountsConcurrently loses no token, and keeps the count within its bounds.
func TestThrottle_CountsConcurrently(t *testing.T) {
	for _, tc := range []struct {
		name                string
		failures, successes int // each of eight goroutines has
		want                float64
	}{
		{"failures", 50, 0, 600},
		{"more failures than tokens", 200, 0, 0},
		{"successes above the most", 0, 100, 1000},
		{"successes that make up for failures", 10, 80, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := hedgetest.All(t, hedgetest.Throttle(1000, 0.125))
			each := func(n int, do func(*call.Call)) {
				var group sync.WaitGroup
				for range 8 {
					group.Go(func() {
						for range n {
							c := call.Begin((*registry.Registry)(s), t.Context(), target, method, nil, hedge.Off())
							do(&c)
						}
					})
				}
				group.Wait()
			}
			each(tc.failures, func(c *call.Call) { c.End(call.Ending{Err: status.Error(codes.Unavailable, "")}) })
			each(tc.successes, func(c *call.Call) { c.End(call.Ending{}) })
			if got := s.Methods()[0]; got.ThrottleTokens != tc.want || got.ThrottleMax != 1000 {
				t.Errorf("%v of %v tokens, want %v", got.ThrottleTokens, got.ThrottleMax, tc.want)
			}
		})
	}
}

// TestThrottle_IsPerTarget: what one target does is nothing to another, and its methods share one
// count.
func TestThrottle_IsPerTarget(t *testing.T) {
	s := hedgetest.All(t, hedgetest.Throttle(10, 1.0009)) // digits past the third decimal are dropped
	for _, c := range []struct{ target, method string }{{"a", "/x/A"}, {"a", "/x/B"}, {"b", "/x/A"}} {
		c := call.Begin((*registry.Registry)(s), t.Context(), c.target, c.method, nil, hedge.Off())
		c.End(call.Ending{Err: status.Error(codes.NotFound, ""), Trailer: metadata.Pairs("grpc-retry-pushback-ms", "-1")})
	}
	a := call.Begin((*registry.Registry)(s), t.Context(), "a", "/x/A", nil, hedge.Off())
	a.End(call.Ending{})
	for i, want := range []float64{9, 9, 9} {
		if row := s.Methods()[i]; row.ThrottleTokens != want {
			t.Errorf("%s%s: %v tokens, want %v", row.Target, row.Method, row.ThrottleTokens, want)
		}
	}
}
