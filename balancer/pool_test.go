package balancer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

// In TestSilence_OfAPool one of three backends hangs for a minute. Each connection of a large pool
// makes few calls, and learns from the others that the backend is silent.
func TestSilence_OfAPool(t *testing.T) {
	longtest.Simulation(t)
	const from, to, rate = 20 * time.Second, 80 * time.Second, 100
	for _, tc := range []struct {
		name   string
		pool   int
		policy string
		opts   []hedge.Option
		most   float64 // calls that fail, in percent of the minute's
	}{
		{name: "64 connections", pool: 64, policy: wrapped(firstOn), most: 1},
		{name: "8 connections", pool: 8, policy: wrapped(firstOn), most: 1},
		{name: "64 connections, no silence", pool: 64, policy: wrapped(firstOn, `"silence": false`), most: 100},
		{name: "64 connections, plain", pool: 64, policy: firstOn, opts: []hedge.Option{hedge.WithMaxHedges(0)}, most: 100},
	}[:longtest.Size(1, 4)] {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s, began := hedgetest.All(t, tc.opts...), time.Now()
			cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: 1, CountsOnly: true})
			cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
				if at := time.Since(began); a.Backend == stalled && at >= from && at < to {
					return testserver.Plan{Ending: testserver.Hang}
				}
				return testserver.Plan{Delay: a.Draw(testserver.LogNormal(5*ms, 2*ms))}
			})
			var clients []testpb.TestServiceClient
			for range tc.pool {
				clients = append(clients, connect(t, cluster, s, bare(tc.policy)))
			}
			var turn atomic.Uint64
			var pooled kind = func(ctx context.Context, _ testpb.TestServiceClient, req *testpb.Request,
				_ ...grpc.CallOption) (*testpb.Reply, error) {
				return clients[turn.Add(1)%uint64(tc.pool)].Unary(ctx, req)
			}
			all := pooled.traffic(t, nil, simulation.Client{Rate: rate, Lasts: to + 20*time.Second, Deadline: time.Second,
				Seed: 1}, codes.DeadlineExceeded)
			minute, row := all.Between(from, to), s.Methods()[0]
			t.Logf("%s: %.1f%% of %d calls fail; %d primaries moved, %d hedges", tc.name, minute.Failed(), len(minute),
				row.Moved, row.Hedges)
			if f := minute.Failed(); f > tc.most {
				t.Errorf("%.1f%% of the minute's calls fail, want at most %.1f", f, tc.most)
			}
		})
	}
}

// TestSilence_OfADestination has calls to eu hedged to us. A backend of either stalls after 10 s. If it is
// one of eu, only eu has a silent backend; if it is one of us, hedges avoid that one.
func TestSilence_OfADestination(t *testing.T) {
	longtest.Simulation(t)
	for _, at := range []string{"eu", "us"} {
		eachKind(t, func(t *testing.T, k kind) {
			region := func(name string) *testserver.Cluster {
				began := time.Now()
				return testserver.StartT(t, testserver.Config{Name: name, InMemory: true, Backends: 2,
					Script: func(a testserver.Attempt) testserver.Plan {
						switch stalls := time.Since(began) > 10*time.Second; {
						case name == at && a.Backend == stalled && stalls:
							return testserver.Plan{Ending: testserver.Hang}
						case name == "eu" && a.ID%5 == 0:
							return testserver.Plan{Delay: 100 * ms}
						}
						return testserver.Plan{Delay: 5 * ms}
					}})
			}
			eu, us := region("eu"), region("us")
			s := hedgetest.All(t, hedge.WithBudgetPercent(100))
			far := us.ClientT(t, over(roundRobin))
			conn := eu.ClientT(t, append(interceptor.DialOptions(s, interceptor.HedgeTo(far)), over(roundRobin))...)
			testserver.ConnectT(t, conn)
			testserver.ConnectT(t, far)
			synctest.Wait()
			client := testpb.NewTestServiceClient(conn)
			for id := range uint64(1500) {
				go func() {
					if _, err := k(t.Context(), client, &testpb.Request{Id: id}); err != nil {
						t.Errorf("call %d: %v", id, err)
					}
				}()
				time.Sleep(20 * ms)
			}
			time.Sleep(time.Second)
			for _, m := range s.Methods() {
				if silent := len(m.Silent) > 0; silent != (at == "eu" && m.Target == eu.Target()) {
					t.Errorf("%s has %d silent backends while one of %s stalls", m.Target, len(m.Silent), at)
				}
			}
			met, hedges := 0, us.Counts().Hedges
			for _, record := range us.Records() {
				if record.Backend == stalled && record.Number > 0 {
					met++
				}
			}
			t.Logf("a backend of %s stalls: %d of %d hedges went to the first backend of us", at, met, hedges)
			if hedges < 100 || at == "us" && met > int(hedges)/3 {
				t.Errorf("%d of %d hedges met the stalled backend of us, want less than a third of 100 or more", met, hedges)
			}
		})
	}
}
