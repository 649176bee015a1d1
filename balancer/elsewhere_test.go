package balancer_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/leastrequest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestHedgeGoesElsewhere makes calls of which only the last attempt answers, and sees at the servers where the
// attempts went, whatever the child.
func TestHedgeGoesElsewhere(t *testing.T) {
	for _, tc := range []struct {
		child    string
		backends int
		hedges   int
		same     int64 // hedges of a call that meet a backend again
	}{
		{roundRobin, 3, 1, 0},
		{roundRobin, 3, 2, 0},
		{roundRobin, 5, 4, 0},
		{roundRobin, 3, 4, 2},
		{roundRobin, 2, 2, 1},
		{roundRobin, 1, 2, 2},
		{leastRequest, 3, 2, 0},
		{leastRequest, 5, 4, 0},
		{stubborn, 3, 2, 0},
		{stubborn, 5, 4, 0},
		{stubborn, 2, 4, 3},
		{pickFirst, 3, 2, 2},
		// The child's hedges go elsewhere before the parent looks.
		{fmt.Sprintf(`{"hedge_other_backend": {"childPolicy": [%s]}}`, roundRobin), 3, 2, 0},
	} {
		t.Run(fmt.Sprintf("%s,%d backends,%d hedges", tc.child, tc.backends, tc.hedges), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				calls := int64(longtest.Size(12, 40))
				cluster := testserver.StartT(t, testserver.Config{Backends: tc.backends, InMemory: true, Script: lastAnswers(tc.hedges)})
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(tc.hedges))
				client := testpb.NewTestServiceClient(dial(t, cluster, s, over(tc.child)))
				synctest.Wait()
				for id := range uint64(calls) {
					reply, err := k.call(t.Context(), client, &testpb.Request{Id: id})
					if err != nil {
						t.Fatal(err)
					}
					at := visited(cluster, id)
					if len(at) != tc.hedges+1 || different(at) != tc.hedges+1-int(tc.same) || int(reply.Backend) != at[tc.hedges] {
						t.Errorf("call %d met the backends %v", id, at)
					}
				}
				stats := s.Stats()
				if stats.Hedges != int64(tc.hedges)*calls || stats.SameBackend != tc.same*calls {
					t.Errorf("%+v", stats)
				}
				row := s.Methods()[0]
				ready := tc.backends
				if tc.child == pickFirst {
					ready = 1
				}
				if row.Ready != ready || row.SingleConnection != (ready == 1) {
					t.Errorf("%d backends are ready, want %d", row.Ready, ready)
				}
			})
		})
	}
}

// TestHedgesDueAtOnce lets all attempts of a call go out together: no two hedges may choose the same backend.
func TestHedgesDueAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		cluster := testserver.StartT(t, testserver.Config{Backends: 5, InMemory: true, Latency: testserver.Constant(time.Second)})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(4))
		client := testpb.NewTestServiceClient(dial(t, cluster, s, over(stubborn)))
		synctest.Wait()
		for id := range uint64(100) {
			if _, err := k.call(t.Context(), client, &testpb.Request{Id: id}, hedge.After(time.Nanosecond)); err != nil {
				t.Fatal(err)
			}
			if at := visited(cluster, id); len(at) != 5 || different(at) != 5 {
				t.Errorf("call %d met the backends %v", id, at)
			}
		}
	})
}

// TestWithinAnotherPolicy puts the policy below and above one that has connections of its own and keeps some of the
// addresses for itself: picks must be of connections that the parent, and gRPC, knows.
func TestWithinAnotherPolicy(t *testing.T) {
	for _, tc := range []struct{ name, config string }{
		{"below", fmt.Sprintf(`{"test_parent": {"childPolicy": [{"hedge_other_backend": {"childPolicy": [%s]}}]}}`, roundRobin)},
		{"below, over a stubborn child", fmt.Sprintf(`{"test_parent": {"childPolicy": [{"hedge_other_backend": {"childPolicy": [%s]}}]}}`, stubborn)},
		{"above", fmt.Sprintf(`{"hedge_other_backend": {"childPolicy": [{"test_parent": {"childPolicy": [%s]}}]}}`, roundRobin)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				cluster := testserver.StartT(t, testserver.Config{Backends: 6, InMemory: true, Script: lastAnswers(2)})
				s := hedgetest.Fixed(t, 10*ms)
				client := testpb.NewTestServiceClient(dial(t, cluster, s,
					grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, tc.config))))
				synctest.Wait()
				for id := range uint64(30) {
					if _, err := k.call(t.Context(), client, &testpb.Request{Id: id}); err != nil {
						t.Fatal(err)
					}
					if at := visited(cluster, id); different(at) != 3 || slices.Max(at) > 2 {
						t.Errorf("call %d met the backends %v", id, at)
					}
				}
				if got := s.Methods()[0].Ready; got != 3 {
					t.Errorf("%d backends are known, want the 3 that the parent lets through", got)
				}
			})
		})
	}
}

// TestOtherBackendOnly holds a hedge back while there is nowhere else to go, and sends it when there is.
func TestOtherBackendOnly(t *testing.T) {
	for _, tc := range []struct {
		name   string
		option grpc.DialOption
		plain  int // backends
		hedges int64
		held   bool
	}{
		{"another backend", over(roundRobin), 2, 1, true}, // one hedge, and none to a backend that was used
		{"two other backends", over(roundRobin), 3, 2, false},
		{"one address", over(roundRobin), 1, 0, true},
		{"pick_first", over(pickFirst), 3, 0, true},
		{"no policy", grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, roundRobin)), 3, 0, true},
	} {
		for _, after := range []time.Duration{0, 10 * ms} {
			t.Run(fmt.Sprintf("%s,after=%v", tc.name, after), func(t *testing.T) {
				inBubble(t, func(t *testing.T, k kind) {
					cluster := testserver.StartT(t, testserver.Config{Backends: tc.plain, InMemory: true, Latency: testserver.Constant(time.Second)})
					s := hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true))
					client := testpb.NewTestServiceClient(dial(t, cluster, s, tc.option))
					synctest.Wait()
					const calls = 10
					for id := range uint64(calls) {
						if _, err := k.call(t.Context(), client, &testpb.Request{Id: id}, hedge.After(after)); err != nil {
							t.Fatal(err)
						}
					}
					stats := s.Stats()
					held := int64(0)
					if tc.held {
						held = calls
					}
					// A hedge that is due at once may come before the primary's own pick, and then it waits for that.
					early := after == 0 && stats.NoOtherBackend > held
					if none := s.Methods()[0].Connections == 0; none != (tc.name == "no policy") {
						t.Errorf("there is no policy: %v", none)
					}
					if stats.Hedges != tc.hedges*calls || stats.NoOtherBackend != held && !early || stats.SameBackend != 0 {
						t.Errorf("%+v", stats)
					}
				})
			})
		}
	}
}

// TestOtherBackendOnly_ComesBack lets the other backend come up while a call waits for it.
func TestOtherBackendOnly_ComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		cluster := testserver.StartT(t, testserver.Config{Backends: 2, InMemory: true, Script: lastAnswers(1)})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true))
		client := testpb.NewTestServiceClient(dial(t, cluster, s, over(roundRobin)))
		synctest.Wait()
		cluster.Stop(0)
		synctest.Wait()
		if b := s.Methods(); len(b) != 0 {
			t.Fatalf("%+v", b)
		}
		time.AfterFunc(time.Second, func() {
			if err := cluster.Restart(0); err != nil {
				t.Error(err)
			}
		})
		reply, err := k.call(t.Context(), client, &testpb.Request{Id: 1})
		if err != nil || reply.Backend != 0 {
			t.Errorf("%v, %v", reply, err)
		}
		if at := visited(cluster, 1); len(at) != 2 || at[0] != 1 {
			t.Errorf("met %v", at)
		}
		if stats := s.Stats(); stats.NoOtherBackend != 1 || stats.Hedges != 1 || stats.SameBackend != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

// TestRetriesCount has gRPC itself try a primary again: both backends count as used.
func TestRetriesCount(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true})
		var arrived atomic.Int32
		cluster.SetScript(func(testserver.Attempt) testserver.Plan {
			switch arrived.Add(1) {
			case 1: // the primary
				return testserver.Plan{Code: codes.Unavailable}
			case 2: // the primary, as gRPC tries it again
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{}
		})
		s := hedgetest.Fixed(t, time.Second, hedge.WithMaxHedges(1))
		conn := dial(t, cluster, s, grpc.WithDefaultServiceConfig(fmt.Sprintf(`{
			"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [%s]}}],
			"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.01s", "maxBackoff": "0.01s",
				"backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`, roundRobin)))
		synctest.Wait()
		if _, err := k.call(t.Context(), testpb.NewTestServiceClient(conn), &testpb.Request{Id: 1}); status.Code(err) != codes.OK {
			t.Fatal(err)
		}
		if at := visited(cluster, 1); len(at) != 3 || different(at) != 3 {
			t.Errorf("met %v", at)
		}
	})
}
