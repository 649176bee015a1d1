package balancer_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// toShard returns the context of a call for which test_shards picks one of the given backends.
func toShard(ctx context.Context, cluster *testserver.Cluster, backends ...int) context.Context {
	for _, b := range backends {
		ctx = metadata.AppendToOutgoingContext(ctx, "shard", cluster.Address(b))
	}
	return ctx
}

// TestShards_Hedges makes calls to a shard of two backends and to a shard of one. Hedges stay in
// the shard of their call, and WithOtherBackendOnly sends none where the shard has one backend.
func TestShards_Hedges(t *testing.T) {
	for _, tc := range []struct {
		only   bool
		shard  []int
		hedges int64 // of each call
		same   int64
	}{
		{false, []int{0, 1}, 2, 1},
		{false, []int{2}, 2, 2},
		{true, []int{0, 1}, 1, 0},
		{true, []int{2}, 0, 0},
	} {
		t.Run(fmt.Sprint(tc.shard, tc.only), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				const calls = 100
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(2), hedge.WithBudgetPercent(400),
					hedge.WithOtherBackendOnly(tc.only))
				cluster, client := play(t, testserver.Config{Backends: 3, Latency: testserver.Constant(50 * ms)}, s, over(shards))
				before := countsNow()
				for id := range uint64(calls) {
					if _, err := k.call(toShard(t.Context(), cluster, tc.shard...), client, &testpb.Request{Id: id}); err != nil {
						t.Fatal(err)
					}
					for _, at := range visited(cluster, id) {
						if !slices.Contains(tc.shard, at) {
							t.Errorf("call %d of shard %v met backend %d", id, tc.shard, at)
						}
					}
				}
				row := s.Methods()[0]
				if row.Hedges != tc.hedges*calls || row.SameBackend != tc.same*calls || (row.NoOtherBackend > 0) != tc.only {
					t.Errorf("%+v", row)
				}
				if asked := countsNow().minus(before).picks; asked > 20*calls {
					t.Errorf("the child was asked %d times in %d calls", asked, calls)
				}
			})
		})
	}
}

// TestAsked_Even has a hedge for each call. A round robin spreads attempts as evenly as without the
// policy.
func TestAsked_Even(t *testing.T) {
	for _, tc := range []struct {
		only     bool
		parallel int
	}{{false, 1}, {true, 16}} {
		t.Run(fmt.Sprintf("only=%v,%d at once", tc.only, tc.parallel), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				const backends, calls = 3, 300
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400),
					hedge.WithOtherBackendOnly(tc.only))
				cluster, client := play(t,
					testserver.Config{Backends: backends, Latency: testserver.Constant(15 * ms)}, s, over(roundRobin))
				var group sync.WaitGroup
				for n := range tc.parallel {
					group.Go(func() {
						for id := n; id < calls; id += tc.parallel {
							k.must(t, client, uint64(id))
						}
					})
				}
				group.Wait()
				var primaries, hedges [backends]int
				for _, r := range cluster.Records() {
					if r.Number == 0 {
						primaries[r.Backend]++
					} else {
						hedges[r.Backend]++
					}
				}
				for b := range backends {
					if n := primaries[b] + hedges[b]; math.Abs(float64(n)-2*calls/backends) > 40 ||
						primaries[b] < 40 || hedges[b] < 40 {
						t.Errorf("primaries %v, hedges %v", primaries, hedges)
					}
				}
			})
		})
	}
}

// In TestSilence_WritesAreNoProbes a backend hangs for 40 seconds. Once all primaries are moved,
// only calls that may be hedged are probes. When those have ended, other calls find that the
// backend answers.
func TestSilence_WritesAreNoProbes(t *testing.T) {
	longtest.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		s, began := hedgetest.New(t, hedge.WithReadOnlyMethods(testpb.TestService_Unary_FullMethodName)), time.Now()
		const hangs, ends, last = 5 * time.Second, 45 * time.Second, 165 * time.Second
		_, client := play(t, testserver.Config{Backends: 3, Script: func(a testserver.Attempt) testserver.Plan {
			if at := time.Since(began); a.Backend == stalled && at > hangs && at < ends {
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{Delay: 2 * ms}
		}}, s, over(roundRobin))
		var failed, there int // of writes
		call := func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
			_ ...grpc.CallOption) (*testpb.Reply, error) {
			at := time.Since(began)
			if req.Id%7 == 0 && at < ends-5*time.Second { // the last read comes before the backend answers
				return c.Unary(ctx, req)
			}
			reply, err := c.UnaryIdempotent(ctx, req)
			if err != nil && at > hangs+12*time.Second {
				failed++
			}
			if err == nil && reply.Backend == stalled && at > last-30*time.Second {
				there++
			}
			return reply, err
		}
		all := traffic{kind: kind{"mixed", call}, rate: 30, lasts: last, deadline: time.Second, rng: generator(1, 2),
			may: []codes.Code{codes.DeadlineExceeded}}.run(t, client)
		if failed > 0 || there < len(all)/25 {
			t.Errorf("%d writes failed as probes; of %d calls %d met the backend afterwards", failed, len(all), there)
		}
	})
}

// TestConnections_NeverAnswers has a second connection that loses its packets, from its beginning
// or after a minute, and a server that answers one call in twenty after a second. Hedges then use
// the first connection.
func TestConnections_NeverAnswers(t *testing.T) {
	longtest.Simulation(t)
	for _, tc := range []struct {
		name   string
		after  time.Duration
		hedges int
		option hedge.Option
	}{
		{"from the start", 0, 1, hedge.WithTrigger(hedge.Fixed(20 * ms))},
		{"from the start, two hedges", 0, 2, hedge.WithTrigger(hedge.Auto())},
		{"after a minute", time.Minute, 1, hedge.WithTrigger(hedge.Auto())},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hedgetest.All(t, tc.option, hedge.WithMaxHedges(tc.hedges))
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, CountsOnly: true,
					Latency: testserver.Straggler(testserver.Uniform(2*ms, 6*ms), 0.05, 250)})
				conn, d, _ := dialDealt(t, cluster, 1, true,
					append(hedgetest.Interceptors(s), with(pickFirst, `"connections": 2`))...)
				synctest.Wait()
				client := testpb.NewTestServiceClient(conn)
				run := func(lasts time.Duration) time.Duration {
					return traffic{kind: kinds[0], rate: 50, lasts: lasts,
						rng: generator(1, 2)}.run(t, client).Tail(0.99)
				}
				if tc.after > 0 {
					run(tc.after)
				}
				second := d.open()[1]
				second.sending.Store(true)
				second.coming.Store(true)
				if p99 := run(5 * time.Minute); p99 > 60*ms {
					t.Errorf("p99 %v", p99)
				}
			})
		})
	}
}

// TestConnections_LeftAlone has a server that closes connections on which nothing happens. They are
// made again when a call begins, and not before.
func TestConnections_LeftAlone(t *testing.T) {
	for _, child := range []string{pickFirst, hashing} {
		inBubble(t, func(t *testing.T, k kind) {
			const n = 8
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, ServerOptions: []grpc.ServerOption{
				grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 10 * time.Second})}})
			conn, d, _ := dialIdle(t, cluster, 1, true, append(hedgetest.Interceptors(hedgetest.Fixed(t, 10*ms)),
				with(child, fmt.Sprintf(`"connections": %d`, n)))...)
			client := testpb.NewTestServiceClient(conn)
			for round := 1; round <= 3; round++ {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "key", "a")
				if _, err := k.call(ctx, client, &testpb.Request{}, grpc.WaitForReady(true)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(ms)
				open := len(d.open())
				time.Sleep(20 * time.Minute)
				if made := len(d.wires); open != n || made > round*n {
					t.Errorf("%s, round %d: %d connections, and %d were made, want %d", child, round, open, made, n)
				}
			}
		})
	}
}

// TestConnections_Hashing makes calls of many keys to three addresses. Each copy connects to the
// address of a key when its first call begins, and hedges use the other connection to the address
// of their key.
func TestConnections_Hashing(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		const keys, connections = 60, 2
		cluster := testserver.StartT(t,
			testserver.Config{Backends: 3, InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
				if a.ID >= keys {
					return lastAnswers(1)(a)
				}
				return testserver.Plan{}
			}})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true))
		conn, d, _ := dialIdle(t, cluster, 3, false, append(hedgetest.Interceptors(s), with(hashing, `"connections": 2`))...)
		client := testpb.NewTestServiceClient(conn)
		for id := range uint64(2 * keys) {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "key", fmt.Sprint(id%keys))
			if _, err := k.call(ctx, client, &testpb.Request{Id: id}, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ms)
			if at := visited(cluster, id); id >= keys && (len(at) != 2 || different(at) != 1 ||
				at[0] != visited(cluster, id-keys)[0]) {
				t.Errorf("key %d met the backends %v", id%keys, at)
			}
		}
		if open := len(d.open()); open != 3*connections {
			t.Errorf("%d connections", open)
		}
		if n := s.Stats().SameBackend; n != 0 {
			t.Errorf("%d hedges used the connection of their primary", n)
		}
	})
}
