package balancer_test

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/leastrequest"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestHedgeGoesElsewhere makes calls with an answer to the last attempt only, and checks the
// backends of the attempts at the servers, also where another policy makes connections of its own
// and hides addresses.
func TestHedgeGoesElsewhere(t *testing.T) {
	parent := func(child string) string { return fmt.Sprintf(`{"test_parent": {"childPolicy": [%s]}}`, child) }
	for _, tc := range []struct {
		policy   string
		backends int
		ready    int // of them, the first ones
		hedges   int
		same     int64 // hedges of a call that meet a backend again
		options  []grpc.CallOption
	}{
		{wrapped(roundRobin), 3, 3, 1, 0, nil},
		{wrapped(roundRobin), 3, 3, 4, 2, nil},
		{wrapped(roundRobin), 2, 2, 2, 1, nil},
		{wrapped(roundRobin), 1, 1, 2, 2, nil},
		{wrapped(leastRequest), 3, 3, 2, 0, nil},
		{wrapped(leastRequest), 5, 5, 3, 0, nil},
		{wrapped(roundRobin), 5, 5, 4, 0, []grpc.CallOption{hedge.After(time.Nanosecond)}}, // all attempts go out together
		{wrapped(stubborn), 5, 5, 4, 4, nil},
		{wrapped(pickFirst), 3, 1, 2, 2, nil},
		{wrapped(wrapped(roundRobin)), 3, 3, 2, 0, nil}, // the child's hedges go elsewhere before the parent looks
		{parent(wrapped(roundRobin)), 6, 3, 2, 0, nil},
		{parent(wrapped(stubborn)), 6, 3, 2, 2, nil},
		{wrapped(parent(roundRobin)), 6, 3, 2, 0, nil},
	} {
		t.Run(fmt.Sprintf("%s,%d backends,%d hedges", tc.policy, tc.backends, tc.hedges), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				calls := int64(longtest.Size(12, 40))
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(tc.hedges))
				cluster, client := play(t, testserver.Config{Backends: tc.backends, Script: lastAnswers(tc.hedges)},
					s, bare(tc.policy))
				for id := range uint64(calls) {
					reply := k.must(t, client, id, tc.options...)
					at := visited(cluster, id)
					if len(at) != tc.hedges+1 || different(at) != tc.hedges+1-int(tc.same) ||
						int(reply.Backend) != at[tc.hedges] || slices.Max(at) >= tc.ready {
						t.Errorf("call %d met the backends %v", id, at)
					}
				}
				row := s.Methods()[0]
				if row.Hedges != int64(tc.hedges)*calls || row.SameBackend != tc.same*calls ||
					row.Ready != tc.ready || row.SingleConnection != (tc.ready == 1) {
					t.Errorf("%+v", row)
				}
			})
		})
	}
}

// TestHedgeGoesElsewhere_OnlyHedges makes unhedged calls under the context of a stream that a hedge
// has won. They take turns as without the stream.
func TestHedgeGoesElsewhere_OnlyHedges(t *testing.T) {
	const calls = 30
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.New(t, hedge.WithMethods(testpb.TestService_ServerStream_FullMethodName), hedge.WithMaxHedges(1))
		cluster, client := play(t, testserver.Config{Backends: 3, Script: func(a testserver.Attempt) testserver.Plan {
			if a.ID == calls {
				return lastAnswers(1)(a)
			}
			return testserver.Plan{}
		}}, s, over(roundRobin))
		st, err := client.ServerStream(t.Context(), &testpb.Request{Id: calls, Messages: 2}, hedge.After(10*ms))
		if err == nil {
			_, err = st.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		backends := map[uint32]int{}
		for id := range uint64(calls) {
			reply, err := client.Unary(st.Context(), &testpb.Request{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			backends[reply.Backend]++
		}
		if !maps.Equal(backends, map[uint32]int{0: calls / 3, 1: calls / 3, 2: calls / 3}) ||
			s.Stats().SameBackend > 0 || different(visited(cluster, calls)) != 2 {
			t.Errorf("calls by backend %v, %+v", backends, s.Stats())
		}
	})
}

// TestOtherBackendOnly checks that a hedge is held back unless the child returns an unused backend.
func TestOtherBackendOnly(t *testing.T) {
	for _, tc := range []struct {
		name   string
		option grpc.DialOption
		count  int // of backends
		hedges int64
		held   bool
	}{
		{"another backend", over(roundRobin), 2, 1, true}, // one hedge, and none to a backend that was used
		{"two other backends", over(roundRobin), 3, 2, false},
		{"one address", over(roundRobin), 1, 0, true},
		{"pick_first", over(pickFirst), 3, 0, true},
		{"a child that always picks the same", over(stubborn), 3, 0, true},
		{"no policy", plain, 3, 0, true},
	} {
		for _, after := range []time.Duration{0, 10 * ms} {
			t.Run(fmt.Sprintf("%s,after=%v", tc.name, after), func(t *testing.T) {
				inBubble(t, func(t *testing.T, k kind) {
					const calls = 10
					s := hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true))
					_, client := play(t, testserver.Config{Backends: tc.count, Latency: testserver.Constant(time.Second)},
						s, tc.option)
					for id := range uint64(calls) {
						k.must(t, client, id, hedge.After(after))
					}
					stats := s.Stats()
					held := int64(0)
					if tc.held {
						held = calls
					}
					// A hedge that is due at once may come before the primary's own pick, and then
					// it waits for that.
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

// TestOtherBackendOnly_ComesBack restarts the other backend while a call waits for it.
func TestOtherBackendOnly_ComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true))
		cluster, client := play(t, testserver.Config{Backends: 2, Script: lastAnswers(1)}, s, over(roundRobin))
		cluster.Stop(0)
		synctest.Wait()
		time.AfterFunc(time.Second, func() {
			if err := cluster.Restart(0); err != nil {
				t.Error(err)
			}
		})
		if reply := k.must(t, client, 1); reply.Backend != 0 {
			t.Errorf("%v", reply)
		}
		if at := visited(cluster, 1); len(at) != 2 || at[0] != 1 {
			t.Errorf("met %v", at)
		}
		if stats := s.Stats(); stats.NoOtherBackend != 1 || stats.Hedges != 1 || stats.SameBackend != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

// TestRetriesCount has gRPC retry a primary: both backends count as used.
func TestRetriesCount(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		var arrived atomic.Int32
		script := func(testserver.Attempt) testserver.Plan {
			switch arrived.Add(1) {
			case 1: // the primary
				return testserver.Plan{Code: codes.Unavailable}
			case 2: // its retry
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{}
		}
		cluster, client := play(t, testserver.Config{Backends: 3, Script: script},
			hedgetest.Fixed(t, time.Second, hedge.WithMaxHedges(1)), grpc.WithDefaultServiceConfig(fmt.Sprintf(`{
			"loadBalancingConfig": [%s],
			"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.01s", "maxBackoff": "0.01s",
				"backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`, wrapped(roundRobin))))
		k.must(t, client, 1)
		if at := visited(cluster, 1); len(at) != 3 || different(at) != 3 {
			t.Errorf("met %v", at)
		}
	})
}
