package balancer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// frozen makes calls with a deadline of 1 s to three backends that serve one call at a time,
// canceled calls included. The first backend stalls for a minute. frozen returns the outcome of the
// calls of that minute. second of ten calls are of a second method.
func frozen(t *testing.T, load float64, seed, second uint64, option grpc.DialOption,
	opts ...hedge.Option) (calls, failed int, p99 time.Duration, row stats.Method) {
	const service, from, to = 8 * ms, 20 * time.Second, 80 * time.Second
	script := func(began time.Time) testserver.Script {
		distribution := testserver.Exponential(service)
		var mu sync.Mutex
		var free [3]time.Time // when the backend has done all requests that arrived, including canceled ones
		return func(a testserver.Attempt) testserver.Plan {
			mu.Lock()
			defer mu.Unlock()
			now, f := time.Now(), &free[a.Backend]
			if now.After(*f) {
				*f = now
			}
			if end := began.Add(to); a.Backend == stalled && now.Sub(began) >= from && f.Before(end) {
				*f = end
			}
			*f = f.Add(a.Draw(distribution))
			return testserver.Plan{Delay: f.Sub(now)}
		}
	}
	mixed := kind{"unary", func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
		opts ...grpc.CallOption) (*testpb.Reply, error) {
		if req.Id%10 < second {
			return c.UnaryIdempotent(ctx, req, opts...)
		}
		return c.Unary(ctx, req, opts...)
	}}
	r := simulate(t, testserver.Config{Seed: seed, CountsOnly: true}, option, script,
		traffic{kind: mixed, rate: 3 * load / service.Seconds(),
			lasts: to, deadline: time.Second, rng: generator(seed, 2), may: []codes.Code{codes.DeadlineExceeded}}, opts...)
	all := slices.DeleteFunc(r.all, func(m simulation.Call) bool { return m.At < from })
	for _, m := range all {
		if m.Err != nil {
			failed++
		}
	}
	return len(all), failed, all.Tail(0.99), r.row
}

// In TestSilence_Overload a backend stalls for a minute, and the others can handle all of its
// calls, or few. In some cases most calls are of a second method with a fixed delay, which cannot
// be late.
func TestSilence_Overload(t *testing.T) {
	longtest.Simulation(t)
	fixed := hedge.WithMethodOptions(testpb.TestService_UnaryIdempotent_FullMethodName,
		hedge.WithTrigger(hedge.Fixed(200*ms)))
	for _, tc := range []struct {
		load    float64
		seconds []uint64 // of ten calls
	}{{0.85, []uint64{0, 8}}, {0.50, []uint64{0}}, {0.75, []uint64{0}}}[:longtest.Size(2, 3)] {
		t.Run(fmt.Sprintf("%.0f%%", 100*tc.load), func(t *testing.T) {
			failures, plainFailures := 0, 0
			for seed := range uint64(longtest.Table(1, 1, 5)) {
				calls, unhedged, _, _ := frozen(t, tc.load, seed, 0, plain, hedge.WithMaxHedges(0))
				for _, second := range tc.seconds {
					_, failed, p99, row := frozen(t, tc.load, seed, second, over(roundRobin), fixed)
					t.Logf("of %d calls, %d of ten of a second method, fail %d plain, %d with silence, p99 %v, "+
						"%.1f%% extra load, %d moved",
						calls, second, unhedged, failed, p99, 100*row.HedgeRate(), row.Moved)
					failures, plainFailures = failures+failed, plainFailures+unhedged
					if tc.load == 0.50 && failed > unhedged/25 {
						t.Errorf("%d calls fail, %d plain", failed, unhedged)
					}
				}
			}
			// At 85% the other backends have 127% of their capacity, and chance decides a single run.
			if float64(failures) > 1.01*float64(plainFailures) {
				t.Errorf("%d calls fail in all runs, %d plain", failures, plainFailures)
			}
		})
	}
}
