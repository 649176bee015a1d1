package balancer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// frozen makes calls with a deadline of 1 s to three backends that serve one call at a time, to its end even if it was cancelled. The
// first backend stands still for a minute. It returns what becomes of the calls of that minute. So many of ten are of a second method.
func frozen(t *testing.T, load float64, seed, second uint64, option grpc.DialOption, opts ...hedge.Option) (calls, failed int, p99 time.Duration, row stats.Method) {
	const service, from, to = 8 * ms, 20 * time.Second, 80 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, opts...)
		cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: seed, DrawByID: true, CountsOnly: true})
		client := testpb.NewTestServiceClient(dial(t, cluster, s, option))
		synctest.Wait()
		began, distribution := time.Now(), testserver.Exponential(service)
		var mu sync.Mutex
		var free [3]time.Time // when the backend has done all that has arrived, what was cancelled too
		cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
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
		})
		mixed := kind{"unary", func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request, opts ...grpc.CallOption) (*testpb.Reply, error) {
			if req.Id%10 < second {
				return c.UnaryIdempotent(ctx, req, opts...)
			}
			return c.Unary(ctx, req, opts...)
		}}
		all := traffic{kind: mixed, rate: 3 * load / service.Seconds(), lasts: to, deadline: time.Second, rng: generator(seed, 2)}.run(t, client)
		all = slices.DeleteFunc(all, func(m made) bool { return m.at < from })
		for _, m := range all {
			if m.err != nil {
				failed++
			}
		}
		calls, p99 = len(all), quantile(all, 0.99)
		row = s.Methods()[0]
	})
	return calls, failed, p99, row
}

// In TestSilence_Overload a backend stands still for a minute and the others have room for all of its calls, or for few.
func TestSilence_Overload(t *testing.T) {
	longtest.Simulation(t)
	plain := grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [` + roundRobin + `]}`)
	for _, load := range []float64{0.85, 0.50, 0.75}[:longtest.Size(2, 3)] {
		t.Run(fmt.Sprintf("%.0f%%", 100*load), func(t *testing.T) {
			for seed := range uint64(longtest.Table(1, 1, 5)) {
				calls, unhedged, _, _ := frozen(t, load, seed, 0, plain, hedge.WithMaxHedges(0))
				_, failed, p99, row := frozen(t, load, seed, 0, over(roundRobin))
				t.Logf("of %d calls fail %d plain, %d with silence, p99 %v, %.1f%% extra load, %d moved", calls, unhedged, failed, p99, 100*row.HedgeRate(), row.Moved)
				if *longtest.Long {
					_, failed, p99, row := frozen(t, load, seed, 0, with(roundRobin, `"silence": false`))
					t.Logf("%d without silence, p99 %v, %.1f%% extra load", failed, p99, 100*row.HedgeRate())
				}
				if float64(failed) > 1.01*float64(unhedged) || load == 0.50 && failed > unhedged/25 {
					t.Errorf("%d calls fail, %d plain", failed, unhedged)
				}
			}
		})
	}
}

// TestSilence_OverloadByOthers is the same where most calls are of a method with a fixed delay, which cannot be late.
func TestSilence_OverloadByOthers(t *testing.T) {
	longtest.Simulation(t)
	plain := grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [` + roundRobin + `]}`)
	fixed := hedge.WithMethodOptions(testpb.TestService_UnaryIdempotent_FullMethodName, hedge.WithTrigger(hedge.Fixed(200*ms)))
	for seed := range uint64(longtest.Table(1, 1, 5)) {
		calls, unhedged, _, _ := frozen(t, 0.85, seed, 8, plain, hedge.WithMaxHedges(0))
		_, failed, _, row := frozen(t, 0.85, seed, 8, over(roundRobin), fixed)
		t.Logf("of %d calls fail %d plain, %d with silence, %d moved", calls, unhedged, failed, row.Moved)
		if float64(failed) > 1.01*float64(unhedged) {
			t.Errorf("%d calls fail, %d plain", failed, unhedged)
		}
	}
}
