package interceptor_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// traffic is calls by a door at a rate, by a number of callers. A call begins on time, or as soon as
// a caller is free.
type traffic struct {
	rate, callers int
	door          door
	lasts         time.Duration
}

// seen is the result of traffic.
type seen struct {
	p99    time.Duration
	failed []error // of calls that may be sent again: all but streams that had begun
	begun  []error
	conns  testserver.ConnCounts
}

// warmup is more than the number of calls that a stream of traffic makes before it has a delay. Such
// calls are not hedged, so they are not sent again either.
const warmup = 100

// run makes calls to a server with a limit, hedged as s decides, or by plain gRPC.
func (tr traffic) run(t *testing.T, limit testserver.Limit, s *hedge.Scheduler) (got seen) {
	t.Helper()
	cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, DrawByID: true, CountsOnly: true,
		Latency: testserver.DistributionT(t, "straggler"), Limit: &limit})
	backoffs := backoff.Config{BaseDelay: 100 * ms, MaxDelay: 100 * ms}
	client := testpb.NewTestServiceClient(dial(t, cluster, s,
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoffs})))
	calls := int64(tr.lasts.Seconds() * float64(tr.rate))
	began := time.Now()
	var took []time.Duration
	var mu sync.Mutex
	var group sync.WaitGroup
	var next atomic.Int64
	for range tr.callers {
		group.Go(func() {
			for id := next.Add(1); id <= calls; id = next.Add(1) {
				time.Sleep(time.Until(began.Add(time.Duration(id-1) * time.Second / time.Duration(tr.rate))))
				at := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				reply, err := callOver(ctx, tr.door, client, &testpb.Request{Id: uint64(id), Messages: 3})
				cancel()
				mu.Lock()
				took = append(took, time.Since(at))
				switch {
				case err != nil && reply != nil:
					got.begun = append(got.begun, err)
				case err != nil && id > warmup:
					got.failed = append(got.failed, fmt.Errorf("call %d after %v: %w", id, time.Since(began), err))
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(took)
	got.p99 = took[len(took)*99/100]
	time.Sleep(time.Minute)
	got.conns = cluster.ConnCounts()
	return got
}

// TestRule07_ServersThatCountResets has servers that cut connections for resets. No call fails that
// may be sent again, none at all where the limit is set, and hedging goes on and makes nothing
// slower.
func TestRule07_ServersThatCountResets(t *testing.T) {
	longtest.Simulation(t)
	for _, tr := range longtest.First(2, []traffic{
		{500, 64, unary, 20 * time.Second}, {500, 16, streaming, 20 * time.Second},
		{5000, 64, streaming, time.Minute}, {5000, 16, unary, time.Minute},
	}) {
		var plain seen
		synctest.Test(t, func(t *testing.T) { plain = tr.run(t, testserver.Limit{}, nil) })
		for _, tc := range longtest.First(3, []struct {
			name  string
			limit testserver.Limit
			set   hedge.Option
		}{
			{"Armeria, small", testserver.Limit{Resets: 40, Per: time.Minute, Close: testserver.CloseCalm}, nil},
			{"Apache, set", testserver.LimitLikeApache, hedge.WithResetLimit(20, time.Second)},
			{"1,000, graceful", testserver.LimitLikeNode, nil},
			{"Armeria", testserver.LimitLikeArmeria, nil},
			{"silent, set", testserver.Limit{Resets: 400, Per: time.Minute, Close: testserver.CloseSilently},
				hedge.WithResetLimit(400, time.Minute)},
		}) {
			hedgetest.Run(t, fmt.Sprintf("%s,%+v", tc.name, tr), func(t *testing.T) {
				s := hedgetest.All(t, tc.set)
				got := tr.run(t, tc.limit, s)
				if len(got.failed) > 0 || tc.set != nil && len(got.begun) > 0 {
					t.Errorf("calls failed that might have been sent again: %v; others: %v", got.failed, got.begun)
				}
				if float64(got.p99) > 1.1*float64(plain.p99) {
					t.Errorf("p99 %v, plain %v", got.p99, plain.p99)
				}
				most := plain.conns.Connections + 1
				if tc.limit == testserver.LimitLikeNode { // which replaces a connection after 1,000 resets
					most += got.conns.Resets / 1000
				}
				if got.conns.Connections > most || s.Stats().HedgeWins < 10 {
					t.Errorf("%d connections, without hedging %d; %+v", got.conns.Connections, plain.conns.Connections, s.Stats())
				}
			})
		}
	}
}
