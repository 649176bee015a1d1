package balancer_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// addresses returns n of a cluster's addresses, from the given one on, as in a circle.
func addresses(cluster *testserver.Cluster, n, from int) (state resolver.State) {
	for i := range n {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{
			Addresses: []resolver.Address{{Addr: cluster.Address((from + i) % cluster.Backends())}}})
	}
	return state
}

// reconfigure changes the addresses and the configuration of a connection.
func reconfigure(names *manual.Resolver, state resolver.State, child, fields string) {
	state.ServiceConfig = names.CC().ParseServiceConfig(
		fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, policy(child, fields)))
	names.UpdateState(state)
}

// TestChurn_EveryField changes configurations and addresses as fast as calls are made. One call in
// a hundred never ends by itself, so that backends become silent and answer again while their
// connections are made, copied and closed. The race detector reports any field that is not guarded.
// No call may fail, because a backend with a removed address lets its calls end. The test runs in
// real time: it has more timers than the race detector of Go 1.26 can handle in a bubble.
func TestChurn_EveryField(t *testing.T) {
	const backends, callers = 5, 16
	updates := longtest.Table(64, 1_000, 10_000) // which is every child once
	cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true, CountsOnly: true})
	cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
		if a.ID%100 == 0 && a.Number == 0 {
			return testserver.Plan{Ending: testserver.Hang}
		}
		return testserver.Plan{}
	})
	s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithTrigger(hedge.Percentile(0.9)),
		hedge.WithWarmup(20, 20*ms),
		hedge.WithResetLimit(1_000_000, time.Second)) // connections end here for no reset
	conn, d, names := dialDealt(t, cluster, backends, false,
		append(hedgetest.Interceptors(s), with(roundRobin, `"connections": 2`),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))...)
	client := testpb.NewTestServiceClient(conn)
	calm, stop := context.WithCancel(t.Context())
	var next atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for calm.Err() == nil {
				id := next.Add(1)
				k := kinds[id%10/9]
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if _, err := k.call(ctx, client, &testpb.Request{Id: uint64(id)}); err != nil {
					t.Errorf("call %d: %v", id, err)
				}
				cancel()
			}
		})
	}
	children := []string{roundRobin, leastRequest, pickFirst, stubborn}
	for n := range updates {
		reconfigure(names, addresses(cluster, 2+n%(backends-1), n), children[n/16%len(children)],
			fmt.Sprintf(`"connections": %d, "spread": %v, "silence": %v`, 1+n%4, n%4 > 0 && n%3 == 0, n%8 != 0))
		for at := next.Load() + 2; next.Load() < at; { // some calls between updates
			runtime.Gosched()
		}
	}
	stop()
	group.Wait()
	cluster.WaitIdleT(t)
	row, stats := s.Methods()[0], s.Stats()
	t.Logf("%d calls, %d updates, %d hedges, %d primaries moved", stats.Calls, updates, stats.Hedges, row.Moved)
	if stats.Hedges == 0 {
		t.Error("nothing was hedged")
	}
	conn.Close()
	// gRPC closes a connection that was connecting, or had a call in it, on a goroutine of its own.
	for deadline := time.After(10 * time.Second); len(d.open()) > 0; {
		select {
		case <-d.open()[0].closed:
		case <-deadline:
			t.Fatalf("%d of %d connections are open after the close", len(d.open()), len(d.wires))
		}
	}
}
