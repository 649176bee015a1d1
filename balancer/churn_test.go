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

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestChurn_EveryField changes configurations and addresses as fast as calls are made. One call in
// a hundred never ends by itself, so that backends become silent and answer again while their
// connections are made, copied and closed. The race detector reports any field that is not guarded.
// No call may fail, because a backend with a removed address lets its calls end. The test runs in
// real time: it has more timers than the race detector of Go 1.26 can handle in a bubble.
func TestChurn_EveryField(t *testing.T) {
	const backends, callers = 5, 16
	updates := longtest.Table(64, 1_000, 10_000) // which is every child once
	cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true, CountsOnly: true,
		Script: func(a testserver.Attempt) testserver.Plan {
			if a.ID%100 == 0 && a.Number == 0 {
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{}
		}})
	s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithTrigger(hedge.Percentile(0.9)),
		hedge.WithWarmup(20, 20*ms),
		hedge.WithHedgeLimit(1_000_000, time.Second)) // connections end here for no reset
	d := dial(t, cluster, backends, false,
		append(hedgetest.Interceptors(s), over(roundRobin, `"connections": 2`),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))...)
	testserver.ConnectT(t, d.conn)
	calm, stop := context.WithCancel(t.Context())
	var next atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for calm.Err() == nil {
				id := next.Add(1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if _, err := []kind{unary, stream}[id%10/9](ctx, d.client, &testpb.Request{Id: uint64(id)}); err != nil {
					t.Errorf("call %d: %v", id, err)
				}
				cancel()
			}
		})
	}
	children := []string{roundRobin, leastRequest, pickFirst, stubborn}
	for n := range updates {
		d.reconfigure(2+n%(backends-1), n, wrapped(children[n/16%len(children)],
			fmt.Sprintf(`"connections": %d, "silence": %v`, 1+n%4, n%8 != 0)))
		for at := next.Load() + 2; next.Load() < at; { // some calls between updates
			runtime.Gosched()
		}
	}
	stop()
	group.Wait()
	cluster.WaitIdleT(t)
	t.Logf("%d updates, %+v", updates, s.Stats())
	if s.Stats().Hedges == 0 {
		t.Error("nothing was hedged")
	}
	d.conn.Close()
	// gRPC closes a connection that was connecting, or had a call in it, on a goroutine of its own.
	for late := time.Now().Add(10 * time.Second); d.open() > 0; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("%d connections are open after the close", d.open())
		}
	}
}
