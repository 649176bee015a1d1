package interceptor_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestTail_NothingConfigured is what the library is for: real gRPC over memory in virtual time, three backends
// with stragglers, and a scheduler with no option set.
func TestTail_NothingConfigured(t *testing.T) {
	longtest.Simulation(t)
	distribution := testserver.DistributionT(t, "straggler")
	calls, bar := 5_000, 0.32 // of few calls the first ones, which are not hedged, are a greater part
	if *longtest.Long {
		calls, bar = 20_000, 0.30
	}
	for _, concurrency := range longtest.First(1, []int{20, 1, 100}) {
		t.Run(fmt.Sprintf("concurrency=%d", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{
					Backends: 3, InMemory: true, Latency: distribution, Seed: 1, DrawByID: true, CountsOnly: true,
				})
				s := hedgetest.All(t)
				plain := measure(t, cluster, calls, concurrency)
				if got := cluster.Counts(); got.Attempts != int64(calls) {
					t.Fatalf("%+v", got)
				}
				cluster.Reset()
				hedged := measure(t, cluster, calls, concurrency, grpc.WithUnaryInterceptor(interceptor.Unary(s)))
				extra := float64(cluster.Counts().Attempts)/float64(calls) - 1

				t.Logf("%8s %8s %8s %6s", "", "plain", "hedged", "ratio")
				for _, q := range []float64{0.50, 0.90, 0.95, 0.99, 0.999} {
					p, h := quantile(plain, q), quantile(hedged, q)
					ratio := float64(h) / float64(p)
					t.Logf("p%-7g %8.1f %8.1f %6.3f", 100*q, p.Seconds()*1e3, h.Seconds()*1e3, ratio)
					if q >= 0.99 && ratio > bar {
						t.Errorf("p%g: %.3f of the unhedged run's, want at most %v", 100*q, ratio, bar)
					}
				}
				t.Logf("extra load %.2f%%; %+v", 100*extra, s.Stats())
				if extra > 0.105 {
					t.Errorf("extra load %.2f%%, want at most 10.5%%", 100*extra)
				}
			})
		})
	}
}

// measure makes calls with the ids from 1 on and returns how long they took, in order.
func measure(t *testing.T, cluster *testserver.Cluster, calls, concurrency int, options ...grpc.DialOption) []time.Duration {
	t.Helper()
	conn := cluster.ClientT(t, options...)
	testserver.ConnectT(t, conn)
	client := testpb.NewTestServiceClient(conn)
	took := make([]time.Duration, calls)
	var next atomic.Int64
	var group sync.WaitGroup
	for range concurrency {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= calls {
					return
				}
				req := &testpb.Request{Id: uint64(i) + 1, ReplyBytes: 32}
				began := time.Now()
				reply, err := client.Unary(t.Context(), req)
				took[i] = time.Since(began)
				if err == nil {
					err = testserver.Check(req, 0, reply)
				}
				if err != nil {
					t.Errorf("call %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	synctest.Wait()
	slices.Sort(took)
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}
