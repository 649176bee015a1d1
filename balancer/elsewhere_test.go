package balancer_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	_ "google.golang.org/grpc/balancer/leastrequest"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestHedgeGoesElsewhere checks the backends of attempts at the servers. A primary takes a second,
// and hedges do not answer. A hedge goes only to a backend that the child returns, and to an unused
// one if there is one.
func TestHedgeGoesElsewhere(t *testing.T) {
	for _, tc := range []struct {
		policy                 string
		backends, ready, reach int // reach: the first backends, which the child returns
		sent, same             int // hedges of a call, and those to a used backend
		after                  time.Duration
	}{
		{policy: wrapped(roundRobin), backends: 3, ready: 3, reach: 3, sent: 2, after: 10 * ms},
		{policy: wrapped(roundRobin), backends: 2, ready: 2, reach: 2, sent: 2, same: 1, after: 10 * ms},
		{policy: wrapped(roundRobin), backends: 1, ready: 1, reach: 1, sent: 2, same: 2, after: 10 * ms},
		// All attempts go out together.
		{policy: wrapped(roundRobin), backends: 5, ready: 5, reach: 5, sent: 4, after: 1},
		{policy: wrapped(leastRequest), backends: 3, ready: 3, reach: 3, sent: 2, after: 10 * ms},
		{policy: wrapped(shard), backends: 3, ready: 3, reach: 2, sent: 2, same: 1, after: 10 * ms},
		{policy: wrapped(stubborn), backends: 5, ready: 5, reach: 1, sent: 4, same: 4, after: 10 * ms},
		{policy: wrapped(pickFirst), backends: 3, ready: 1, reach: 1, sent: 2, same: 2, after: 10 * ms},
		// The child's hedges go elsewhere first.
		{policy: wrapped(wrapped(roundRobin)), backends: 3, ready: 3, reach: 3, sent: 2, after: 10 * ms},
	} {
		t.Run(fmt.Sprintf("%s,%d", tc.policy, tc.backends), func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				const calls = 12
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(tc.sent))
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
				row := s.Methods()[0]
				if row.SameBackend != int64(tc.same)*calls || row.Ready != tc.ready {
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

// TestPicksAreReleased counts at the child: Done is called once for each pick, with an empty
// DoneInfo if and only if the pick is not used. A child such as outlier_detection is told of no
// failure of an attempt that lost its race or was turned away.
func TestPicksAreReleased(t *testing.T) {
	for _, tc := range []struct {
		backends int
		script   testserver.Script
	}{{1, lastAnswers(2)}, {3, lastAnswers(2)}, {3, turnsHedgesAway}} {
		eachKind(t, func(t *testing.T, k kind) {
			const calls = 20
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(2))
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
