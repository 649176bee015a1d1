package balancer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/leastrequest"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestHedgeGoesElsewhere checks the backends of attempts at the servers. A primary takes a second,
// and hedges do not answer. Two hedges are due, or as many as are sent if those are more. A hedge
// goes only to a backend that the child returns, to an unused one if there is one, and to no other
// with WithOtherBackendOnly.
func TestHedgeGoesElsewhere(t *testing.T) {
	const other, any = true, false
	for _, tc := range []struct {
		policy                 string
		backends, ready, reach int // reach: the first backends, which the child returns
		only                   bool
		sent, same             int // hedges of a call, and those to a used backend
		after                  time.Duration
	}{
		{policy: wrapped(roundRobin), backends: 3, ready: 3, reach: 3, only: any, sent: 2, after: 10 * ms},
		{policy: wrapped(roundRobin), backends: 2, ready: 2, reach: 2, only: any, sent: 2, same: 1, after: 10 * ms},
		{policy: wrapped(roundRobin), backends: 1, ready: 1, reach: 1, only: any, sent: 2, same: 2, after: 10 * ms},
		// All attempts go out together.
		{policy: wrapped(roundRobin), backends: 5, ready: 5, reach: 5, only: any, sent: 4, after: 1},
		{policy: wrapped(leastRequest), backends: 3, ready: 3, reach: 3, only: any, sent: 2, after: 10 * ms},
		{policy: wrapped(shard), backends: 3, ready: 3, reach: 2, only: any, sent: 2, same: 1, after: 10 * ms},
		{policy: wrapped(stubborn), backends: 5, ready: 5, reach: 1, only: any, sent: 4, same: 4, after: 10 * ms},
		{policy: wrapped(pickFirst), backends: 3, ready: 1, reach: 1, only: any, sent: 2, same: 2, after: 10 * ms},
		// The child's hedges go elsewhere first.
		{policy: wrapped(wrapped(roundRobin)), backends: 3, ready: 3, reach: 3, only: any, sent: 2, after: 10 * ms},
		{policy: wrapped(roundRobin), backends: 3, ready: 3, reach: 3, only: other, sent: 2, after: 10 * ms},
		{policy: wrapped(roundRobin), backends: 3, ready: 3, reach: 3, only: other, sent: 2},
		{policy: wrapped(roundRobin), backends: 2, ready: 2, reach: 2, only: other, sent: 1, after: 10 * ms},
		{policy: wrapped(roundRobin), backends: 1, ready: 1, reach: 1, only: other, after: 10 * ms},
		{policy: wrapped(shard), backends: 3, ready: 3, reach: 2, only: other, sent: 1, after: 10 * ms},
		{policy: wrapped(stubborn), backends: 3, ready: 3, reach: 1, only: other, after: 10 * ms},
		{policy: wrapped(pickFirst), backends: 3, ready: 1, reach: 1, only: other, after: 10 * ms},
		{policy: roundRobin, backends: 3, reach: 3, only: other, after: 10 * ms}, // no policy
	} {
		t.Run(fmt.Sprintf("%s,%d,only=%v", tc.policy, tc.backends, tc.only), func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				const calls = 12
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(max(2, tc.sent)), hedge.WithOtherBackendOnly(tc.only))
				cluster, client := play(t, testserver.Config{Backends: tc.backends,
					Script: func(a testserver.Attempt) testserver.Plan {
						return testserver.Plan{Delay: time.Second + time.Duration(a.Number)*time.Hour}
					}}, s, bare(tc.policy))
				for id := range uint64(calls) {
					k.must(t, client, id, hedge.After(tc.after))
					if at := visited(cluster, id); len(at) != tc.sent+1 || different(at) != tc.sent+1-tc.same ||
						slices.Max(at) >= tc.reach {
						t.Errorf("call %d met the backends %v", id, at)
					}
				}
				row, none := s.Methods()[0], int64(0)
				if tc.only && tc.sent < 2 {
					none = calls
				}
				// A hedge that is due at once waits for the primary's pick.
				early := tc.after == 0 && row.NoOtherBackend > none
				if row.SameBackend != int64(tc.same)*calls || row.NoOtherBackend != none && !early || row.Ready != tc.ready ||
					row.SingleConnection != (tc.ready == 1) {
					t.Errorf("the row is %+v, want %d hedges, %d of them at a used backend, %d ready", row, tc.sent, tc.same, tc.ready)
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

// TestOtherBackendOnly_ComesBack restarts the other backend while a call waits for it.
func TestOtherBackendOnly_ComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true))
		cluster, client := play(t, testserver.Config{Backends: 2, Script: lastAnswers(1)}, s, over(roundRobin))
		cluster.Stop(0)
		synctest.Wait()
		time.AfterFunc(time.Second, func() {
			if err := cluster.Restart(0); err != nil {
				t.Error(err)
			}
		})
		if reply := unary.must(t, client, 1); reply.Backend != 0 || s.Stats().Hedges != 1 {
			t.Errorf("the reply is %v, want the primary's after one hedge; %+v", reply, s.Stats())
		}
	})
}

// TestPicksAreReleased counts at the child: Done is called once for each pick, with an empty
// DoneInfo if and only if the pick is not used. A child such as outlier_detection is told of no
// failure of an attempt that lost its race or was turned away.
func TestPicksAreReleased(t *testing.T) {
	for _, tc := range []struct {
		backends int
		only     bool
		script   testserver.Script
	}{
		{1, false, lastAnswers(2)}, {3, false, lastAnswers(2)}, {3, true, lastAnswers(2)}, {3, false, turnsHedgesAway},
	} {
		eachKind(t, func(t *testing.T, k kind) {
			const calls = 20
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(2), hedge.WithOtherBackendOnly(tc.only))
			cluster, client := play(t, testserver.Config{Backends: tc.backends, Script: tc.script}, s, over(counting))
			picks, dones := counts.picks.Load(), counts.dones.Load()
			unused, failed := counts.unused.Load(), counts.failed.Load()
			for id := range uint64(calls) {
				k.must(t, client, id)
			}
			synctest.Wait()
			picks, dones = counts.picks.Load()-picks, counts.dones.Load()-dones
			unused, failed = counts.unused.Load()-unused, counts.failed.Load()-failed
			attempts := cluster.Counts().Attempts
			if dones != picks || counts.twice.Load() || unused != picks-attempts || (unused > 0) != (tc.backends > 1) ||
				failed > 0 || attempts < 3*calls {
				t.Errorf("%d backends: %d attempts, %d picks, %d done (one of them twice: %v), %d as unused, %d as failed",
					tc.backends, attempts, picks, dones, counts.twice.Load(), unused, failed)
			}
		})
	}
}

// TestPicksAreReleased_AsLateAsAnswers has a first backend that stops answering after 300 calls. A
// child that measures latencies sees no fast answer from it: unused picks are held for the delay of
// hedges, 10 ms.
func TestPicksAreReleased_AsLateAsAnswers(t *testing.T) {
	const stops = 300
	eachKind(t, func(t *testing.T, k kind) {
		_, client := play(t, testserver.Config{Backends: 3, Script: func(a testserver.Attempt) testserver.Plan {
			if a.Backend == 0 && a.ID >= stops {
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{Delay: 3 * ms}
		}}, hedgetest.All(t, hedge.WithMinDelay(10*ms), hedge.WithBudgetPercent(400)), over(counting))
		var unused, briefly int64
		for id := range uint64(stops + 100) {
			if id == stops {
				unused, briefly = counts.unused.Load(), counts.briefly.Load()
			}
			k.must(t, client, id)
		}
		time.Sleep(2 * time.Second)
		unused, briefly = counts.unused.Load()-unused, counts.briefly.Load()-briefly
		if unused < 10 || briefly > 0 {
			t.Errorf("%d of %d unused picks looked like answers in less than 10 ms, want none of 10 or more",
				briefly, unused)
		}
	})
}

// TestPicksAreReleased_OfHedgesThatFail has hedges that fail before they pick. The caller of a
// stream asks for its headers alone, and then gives up.
func TestPicksAreReleased_OfHedgesThatFail(t *testing.T) {
	isHedge := func(ctx context.Context) bool {
		md, _ := metadata.FromOutgoingContext(ctx)
		return len(md.Get(rpc.AttemptsHeader)) > 0
	}
	synctest.Test(t, func(t *testing.T) {
		_, client := play(t, testserver.Config{Backends: 3, Latency: testserver.Constant(30 * ms)},
			hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true)), over(counting),
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
				cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if isHedge(ctx) {
					return errFake
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
				method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if isHedge(ctx) {
					return nil, errFake
				}
				return open(ctx, desc, cc, method, opts...)
			}))
		picks, dones := counts.picks.Load(), counts.dones.Load()
		unary.must(t, client, 1)
		ctx, cancel := context.WithCancel(t.Context())
		st, err := client.ServerStream(ctx, &testpb.Request{Messages: 1})
		if err == nil {
			_, err = st.Header()
		}
		cancel()
		synctest.Wait()
		picks, dones = counts.picks.Load()-picks, counts.dones.Load()-dones
		if err != nil || picks < 4 || dones != picks {
			t.Errorf("%d picks, %d done; %v", picks, dones, err)
		}
	})
}
