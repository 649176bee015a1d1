package balancer_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "google.golang.org/grpc/balancer/leastrequest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
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

// turnsHedgesAway is a script of busy backends. The primary answers after 100 ms.
func turnsHedgesAway(a testserver.Attempt) testserver.Plan {
	if a.Number == 0 {
		return testserver.Plan{Delay: 100 * ms}
	}
	return testserver.Plan{Code: codes.ResourceExhausted, Trailer: metadata.Pairs("grpc-retry-pushback-ms", "0")}
}

// TestRule11_AfterAHedgeThatWasTurnedAway has busy backends turn hedges away. The next hedge goes
// at once to a backend that the call has not used. Without one it goes a delay later.
func TestRule11_AfterAHedgeThatWasTurnedAway(t *testing.T) {
	asGRPC := []hedge.Option{hedge.WithServiceConfig(
		`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 4, "hedgingDelay": "0.01s", ` +
			`"nonFatalStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`)}
	for _, tc := range []struct {
		name, policy string
		backends     int
		want         []int // the ages in ms at which attempts arrive
		opts         []hedge.Option
	}{
		{name: "five backends", policy: wrapped(roundRobin), backends: 5, want: []int{0, 10, 10, 10, 10}},
		{name: "all others are busy", policy: wrapped(roundRobin), backends: 3, want: []int{0, 10, 10, 20, 30}},
		{name: "one hedge at most", policy: wrapped(roundRobin), backends: 4, want: []int{0, 10, 10, 10, 20},
			opts: []hedge.Option{hedge.WithMaxHedges(1)}},
		{name: "one backend", policy: wrapped(roundRobin), backends: 1, want: []int{0, 10, 20, 30, 40}},
		{name: "always the same", policy: wrapped(stubborn), backends: 3, want: []int{0, 10, 20, 30, 40}},
		{name: "three connections", policy: wrapped(roundRobin, `"connections": 3`), backends: 1,
			want: []int{0, 10, 10, 20, 30}},
		{name: "no policy", policy: roundRobin, backends: 3, want: []int{0, 10, 10, 10, 10}},
		{name: "gRPC's policy", policy: wrapped(roundRobin), backends: 5, want: []int{0, 10, 10, 10}, opts: asGRPC},
		{name: "gRPC's policy, one backend", policy: wrapped(roundRobin), backends: 1, want: []int{0, 10, 10, 10},
			opts: asGRPC},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				s := hedgetest.Fixed(t, 10*ms, tc.opts...)
				cluster, client := play(t, testserver.Config{Backends: tc.backends, Script: turnsHedgesAway}, s, bare(tc.policy))
				began := time.Now()
				if reply := k.must(t, client, 1); reply.Attempt != 0 || time.Since(began) != 100*ms {
					t.Errorf("answered by attempt %d after %v", reply.Attempt, time.Since(began))
				}
				synctest.Wait()
				var at []int
				for _, r := range cluster.RecordsOf(1) {
					at = append(at, int(r.Arrival.Sub(began)/ms))
				}
				met := visited(cluster, 1)
				if slices.Sort(at); !slices.Equal(at, tc.want) ||
					different(met) != min(tc.backends, len(met)) && tc.name != "always the same" {
					t.Errorf("attempts at %v, want %v; backends %v", at, tc.want, met)
				}
				row := s.Methods()[0]
				if hedges := int64(len(tc.want) - 1); row.Hedges != hedges || row.TurnedAway != hedges ||
					row.HedgeWins+row.PrimaryWins != 0 {
					t.Errorf("%+v, want no wins, and every hedge turned away", row.Counts)
				}
			})
		})
	}
}

// TestTurnedAway_IsNotSilence makes two calls. Their hedges are turned away after a while. The hedge
// that follows is due at once, and not because the one before was late.
func TestTurnedAway_IsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithWarmup(20, time.Second))
		cluster, client := play(t, testserver.Config{Backends: 1, Latency: testserver.Constant(10 * ms)},
			s, over(roundRobin, `"connections": 2`))
		for id := range uint64(200) { // so that the delay is learned
			unary.must(t, client, id)
		}
		delay := s.Methods()[0].Delay
		cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
			p := turnsHedgesAway(a)
			if a.Number > 0 {
				p.Delay = delay * 8 / 10
			}
			return p
		})
		var both sync.WaitGroup
		for id := range uint64(2) {
			both.Go(func() { unary.must(t, client, 10_000+id) })
			time.Sleep(delay * 6 / 10)
		}
		time.Sleep(delay * 3 / 2)
		row := s.Methods()[0]
		if row.TurnedAway != 2 {
			t.Errorf("%d turned away", row.TurnedAway)
		}
		for _, b := range row.Silent {
			if b.Connections > 1 { // the connection of the primaries may be silent
				t.Errorf("silent: %v", b)
			}
		}
		both.Wait()
	})
}

// TestRule12_EveryHedgeIsTurnedAway has slow primaries, and servers that answer each hedge with a
// pushback of 0, at once or as late as they can. A call has at most five attempts, and the hedges
// cost a tenth each: together at most the budget's share of the calls, the burst and two hedges. A
// primary that fails with a pushback of 0 is not sent again.
func TestRule12_EveryHedgeIsTurnedAway(t *testing.T) {
	const atOnce, late, silent, fails = "at once", "late", "a silent backend", "primaries fail"
	for _, name := range []string{atOnce, late, silent, fails} {
		hedgetest.Run(t, name, func(t *testing.T) {
			script := func(a testserver.Attempt) testserver.Plan {
				p := turnsHedgesAway(a)
				switch {
				case name == silent && a.Backend == stalled:
					return testserver.Plan{Ending: testserver.Hang}
				case name == late && a.Number > 0:
					p.Delay = 80 * ms
				case name == fails && a.Number == 0:
					a.Number++
					return turnsHedgesAway(a)
				}
				return p
			}
			const rate, budget = 50, 0.1
			s := hedgetest.All(t, hedge.WithBudgetPercent(100*budget), hedge.WithTrigger(hedge.Fixed(10*ms)))
			cluster, client := play(t, testserver.Config{Backends: 5, Script: script}, s, over(roundRobin))
			all := unary.traffic(t, client, simulation.Client{Rate: rate, Calls: 200, Seed: 1, Deadline: time.Second},
				codes.ResourceExhausted, codes.DeadlineExceeded)
			synctest.Wait()
			attempts := map[uint64]int{}
			for _, r := range cluster.Records() {
				if attempts[r.ID]++; attempts[r.ID] > 5 {
					t.Fatalf("call %d has %d attempts", r.ID, attempts[r.ID])
				}
			}
			extra := float64(len(cluster.Records()) - len(all))
			cost := s.Stats().HedgeRate() * float64(len(all)) // some were canceled, and cost 1
			burst := 1.5 * 2 * rate * budget                  // the rate varies
			if cost > budget*float64(len(all))+burst+2 || (name == fails) != (extra == 0) {
				t.Errorf("%v attempts beyond the first of %d calls cost %v", extra, len(all), cost)
			}
		})
	}
}
