package acceptance_test

import (
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
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// trickle is the distribution of the workload slow-trickle: the median is 5 ms, and one attempt in
// twenty takes eight times as long.
var trickle = testserver.Straggler(testserver.LogNormal(5533*time.Microsecond, 2621*time.Microsecond), 0.05, 8)

var unhedged = with{hedge.WithMaxHedges(0)}

// TestRule19_FewCallsFailForLackOfQuota offers calls close to a rate limit. Where hedges use it up,
// they become few, so that hardly more calls fail than without hedging, and where they do not,
// nothing changes.
func TestRule19_FewCallsFailForLackOfQuota(t *testing.T) {
	longtest.Simulation(t)
	calls := longtest.Size(8_000, 40_000)
	for _, tc := range longtest.First(1, []struct {
		name           string
		offered, after float64 // calls a second, and the limit in the second half
	}{
		{"480 of 500 a second", 480, 500},
		{"400 of 500 a second", 400, 500},
		{"440 of 500 a second", 440, 500},
		{"460 of 500 a second", 460, 500},
		{"240 of 500 a second, then of 250", 240, 250},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(longtest.Table(1, 2, 5)) {
				run := func(opts ...hedge.Option) (simulation.Calls, []stats.Method) {
					limit := simulation.NewQuota(500, 50)
					limit.Rate = func(at time.Duration) float64 {
						if at.Seconds() < float64(calls)/tc.offered/2 {
							return 500
						}
						return tc.after
					}
					return simulation.Client{Latency: simulation.Drawing(trickle, seed), Fails: limit.Take,
						Calls: calls, Rate: tc.offered, Seed: seed, Options: opts}.Run(t)
				}
				plain, _ := run(unhedged...)
				hedged, rows := run()
				unguarded, _ := run(hedge.WithGuard(false))
				more := func(calls simulation.Calls) float64 { return calls.Failed() - plain.Failed() }
				t.Logf("seed %d: failed %.2f%%, hedged %.2f%%, without the guard %.2f%%; p99 %v, hedged %v, "+
					"without the guard %v; %+v",
					seed, plain.Failed(), hedged.Failed(), unguarded.Failed(), plain.Tail(0.99), hedged.Tail(
						0.99), unguarded.Tail(0.99), rows[0].Guard)
				// 60 of 40,000 calls; most of what fails does so when the limit is first met.
				if most := 0.15 * 40_000 / float64(calls); more(hedged) > most {
					t.Errorf("seed %d: %.3f%% more calls fail, want at most %v%%", seed, more(hedged), most)
				}
				switch {
				case more(unguarded) == 0 && hedged.Tail(0.99) != unguarded.Tail(0.99):
					t.Errorf("seed %d: p99 is %v, and %v without the guard, although no call fails", seed,
						hedged.Tail(0.99), unguarded.Tail(0.99))
				case tc.offered == 480 && more(unguarded) < 1.9:
					t.Errorf("seed %d: the limit is not met", seed)
				case hedged.Failed() > 0.01 && rows[0].Guarded == 0:
					t.Errorf("seed %d: no hedge was held back", seed)
				}
			}
		})
	}
}

// TestRule19_FailuresAtADeadline stops one of three backends for a second in five: a call that fails
// at its deadline, without an answer, is no sign against hedges. The guard holds no hedge back.
func TestRule19_FailuresAtADeadline(t *testing.T) {
	longtest.Simulation(t)
	run := func(opts ...hedge.Option) (simulation.Calls, stats.Method) {
		latency := func(id uint64, attempt int, at time.Duration) time.Duration {
			d := simulation.Drawing(trickle, 1)(id, attempt, at)
			if in := at % (5 * time.Second); in < time.Second &&
				simulation.Generator(9, id, attempt).IntN(3) == int(at/(5*time.Second))%3 {
				d += time.Second - in
			}
			return d
		}
		calls, rows := simulation.Client{Latency: latency, Calls: longtest.Size(12_000, 36_000), Rate: 60,
			Deadline: 300 * ms, Seed: 1, Options: opts}.Run(t)
		return calls, rows[0]
	}
	plain, _ := run(unhedged...)
	hedged, row := run()
	t.Logf("failed %.2f%%, hedged %.2f%%; held back %d", plain.Failed(), hedged.Failed(), row.Guarded)
	if plain.Failed() < 4 || row.Guarded > 0 || hedged.Failed() > plain.Failed()/2 {
		t.Error("want more than 4% failed without hedging, less than half as many with it, and no hedge held back")
	}
}

// TestRule19_CutsForNoReason has a server that cuts the connection after 25 resets in a second
// without a reason, so that all calls in flight fail. Plain gRPC has no failure, and hedging hardly
// one after the first minute.
func TestRule19_CutsForNoReason(t *testing.T) {
	longtest.Simulation(t)
	for name, most := range map[string]float64{"plain": 0, "hedged": 0.05} { // percent, after the first minute
		synctest.Test(t, func(t *testing.T) {
			cluster := testserver.StartT(t,
				testserver.Config{InMemory: true, Latency: testserver.LogNormal(110*ms, 50*ms), Seed: 1, DrawByID: true,
					CountsOnly: true, Limit: &testserver.LimitLikeApache})
			backoffs := backoff.Config{BaseDelay: 100 * ms, MaxDelay: 100 * ms}
			dial := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoffs})}
			if name == "hedged" {
				dial = append(dial, hedgetest.Interceptors(hedgetest.All(t, hedge.WithBudgetPercent(50),
					hedge.WithTrigger(hedge.Fixed(100*ms))))...)
			}
			conn := cluster.ClientT(t, dial...)
			testserver.ConnectT(t, conn)
			const minute = 6000 // calls
			var first, later atomic.Int64
			var group sync.WaitGroup
			minutes := longtest.Size(3, 5)
			for id := range minute * minutes {
				group.Go(func() {
					_, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{Id: uint64(id) + 1})
					if failed := map[bool]*atomic.Int64{true: &first, false: &later}[id < minute]; err != nil {
						failed.Add(1)
					}
				})
				time.Sleep(10 * ms)
			}
			group.Wait()
			percent := func(n int64, minutes int) float64 { return 100 * float64(n) / minute / float64(minutes) }
			then := percent(later.Load(), minutes-1)
			t.Logf("%s: %.2f%% of calls fail in the first minute, %.2f%% later", name, percent(first.Load(), 1), then)
			if then > most {
				t.Errorf("%s: %.2f%% of calls fail after the first minute, want at most %v", name, then, most)
			}
			if cuts := cluster.ConnCounts().Cuts; (cuts > 0) != (name == "hedged") {
				t.Errorf("%s: the server has cut %d connections", name, cuts)
			}
		})
	}
}

// TestRule13_ABusyClientTeachesNothing has goroutines of the client wait for a processor while hedges
// are due, for a while or until the call's end. Then the hedge waits too, and the call's latency is
// not learned.
func TestRule13_ABusyClientTeachesNothing(t *testing.T) {
	const never = time.Hour
	for _, tc := range []struct {
		name   string
		takes  time.Duration
		wait   time.Duration
		until  time.Duration // the age from which goroutines do not wait
		sent   time.Duration // the age at which the hedge is sent; 0: never
		asked  bool
		counts int64
	}{
		{name: "a call that needs no hedge", takes: 9 * ms, wait: time.Second, until: never},
		{name: "a sixteenth of the delay", takes: 50 * ms, wait: 10 * ms / 16, until: never, sent: 10 * ms, asked: true},
		{name: "longer", takes: 50 * ms, wait: 10*ms/16 + 1, until: never, sent: 11250 * time.Microsecond, asked: true,
			counts: 1},
		{name: "to the end", takes: 50 * ms, wait: 5 * ms, until: never, asked: true, counts: 1},
		{name: "for a while", takes: 50 * ms, wait: 5 * ms, until: 12 * ms, sent: 12656250 * time.Nanosecond, asked: true,
			counts: 1},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			began := time.Now()
			var asked atomic.Int64
			defer runqueue.Replace(func() time.Duration {
				if asked.Add(1); time.Since(began) >= tc.until {
					return 0
				}
				return tc.wait
			})()
			var sent time.Duration
			var reasons []stats.Reason
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithTrace(&hedge.Trace{
				HedgeSent:     func(e stats.HedgeSent) { sent = e.Age },
				HedgeHeldBack: func(e stats.HedgeHeldBack) { reasons = append(reasons, e.Reason) },
			}))
			hedgetest.Call(t, s, simulation.Target, simulation.Method, tc.takes)
			_, learned := s.Latency(simulation.Target, simulation.Method, 0.5)
			if got := s.Stats(); sent != tc.sent || learned != (tc.counts == 0) || got.ClientBusy != tc.counts ||
				asked.Load() > 0 != tc.asked || slices.Contains(reasons, stats.ClientBusy) != (tc.counts > 0) {
				t.Errorf("sent %v, asked %d times, held back: %v; learned: %t; %+v", sent, asked.Load(), reasons, learned, got)
			}
		})
	}
}
