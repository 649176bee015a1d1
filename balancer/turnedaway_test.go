package balancer_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

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
