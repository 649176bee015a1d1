package balancer_test

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRule11_AfterAHedgeThatWasTurnedAway has busy backends turn hedges away. The next hedge goes
// at once to a backend that the call has not used. Without one it goes a delay later. The primary
// answers after 100 ms.
func TestRule11_AfterAHedgeThatWasTurnedAway(t *testing.T) {
	for _, tc := range []struct {
		name     string
		option   grpc.DialOption
		backends int
		want     []int // the ages in ms at which attempts arrive
		opts     []hedge.Option
	}{
		{"five backends", over(roundRobin), 5, []int{0, 10, 10, 10, 10}, nil},
		{"all others are busy", over(roundRobin), 3, []int{0, 10, 10, 20, 30}, nil},
		{"one hedge at most", over(roundRobin), 4, []int{0, 10, 10, 10, 20}, []hedge.Option{hedge.WithMaxHedges(1)}},
		{"other backends only", over(roundRobin), 3, []int{0, 10, 10}, []hedge.Option{hedge.WithOtherBackendOnly(true)}},
		{"one backend", over(roundRobin), 1, []int{0, 10, 20, 30, 40}, nil},
		{stubborn, over(stubborn), 3, []int{0, 10, 20, 30, 40}, nil},
		{"two connections", with(roundRobin, `"connections": 2`), 1, []int{0, 10, 20, 30, 40}, nil},
		{"three connections", with(roundRobin, `"connections": 3`), 1, []int{0, 10, 10, 20, 30}, nil},
		{"no policy", plain, 3, []int{0, 10, 10, 10, 10}, nil},
		{"gRPC's policy", over(roundRobin), 5, []int{0, 10, 10, 10}, []hedge.Option{hedge.WithServiceConfig(
			`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 4, "hedgingDelay": "0.01s", ` +
				`"nonFatalStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				s := hedgetest.Fixed(t, 10*ms, tc.opts...)
				cluster, client := play(t, testserver.Config{Backends: tc.backends, Script: turnsHedgesAway}, s, tc.option)
				began := time.Now()
				if reply := k.must(t, client, 1); reply.Attempt != 0 || time.Since(began) != 100*ms {
					t.Errorf("answered by attempt %d after %v", reply.Attempt, time.Since(began))
				}
				synctest.Wait()
				var at []int
				for _, r := range cluster.RecordsOf(1) {
					at = append(at, int(r.Arrival.Sub(began)/ms))
				}
				slices.Sort(at)
				if !slices.Equal(at, tc.want) {
					t.Errorf("attempts at %v, want %v", at, tc.want)
				}
				met := visited(cluster, 1)
				if want := min(tc.backends, len(met)); different(met) != want && tc.name != stubborn {
					t.Errorf("met %v: backends that are not used come first", met)
				}
				row := s.Methods()[0]
				if hedges := int64(len(tc.want) - 1); row.Hedges != hedges || row.PushedBack != hedges ||
					row.HedgeWins+row.PrimaryWins != 0 {
					t.Errorf("%+v", row.Counts)
				}
			})
		})
	}
}

func turnsHedgesAway(a testserver.Attempt) testserver.Plan {
	if a.Number == 0 {
		return testserver.Plan{Delay: 100 * ms}
	}
	return testserver.Plan{Code: codes.ResourceExhausted, Trailer: metadata.Pairs("grpc-retry-pushback-ms", "0")}
}

// TestTurnedAway_IsNoSilence makes two calls. Their hedges are turned away after a while. The hedge
// that follows is due at once, and not because the one before was late.
func TestTurnedAway_IsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithBudgetPercent(400))
		cluster, client := play(t, testserver.Config{Backends: 1, Latency: testserver.Constant(10 * ms)},
			s, with(roundRobin, `"connections": 2`))
		for id := range uint64(2000) { // so that the delay is learned
			kinds[0].must(t, client, id)
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
			both.Go(func() { kinds[0].must(t, client, 10_000+id) })
			time.Sleep(delay * 6 / 10)
		}
		time.Sleep(delay * 3 / 2)
		row := s.Methods()[0]
		if row.PushedBack != 2 {
			t.Errorf("%d turned away", row.PushedBack)
		}
		for _, b := range row.Silent {
			if b.Connections > 1 { // the connection of the primaries may be silent
				t.Errorf("silent: %v", b)
			}
		}
		both.Wait()
	})
}

// TestTurnedAway_IsNoFailure: a child such as outlier_detection, which counts errors, must not
// eject busy backends.
func TestTurnedAway_IsNoFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		s := hedgetest.Fixed(t, 10*ms)
		_, client := play(t, testserver.Config{Backends: 3, Script: turnsHedgesAway}, s, over(counting))
		before := countsNow()
		k.must(t, client, 1)
		synctest.Wait()
		if n := countsNow().minus(before); n.failed > 0 || n.dones == 0 || s.Stats().PushedBack != 4 {
			t.Errorf("the child is told of failures: %+v; %+v", n, s.Stats())
		}
	})
}

// TestRule12_EveryHedgeIsTurnedAway has slow primaries, and servers that answer each hedge with a
// pushback of 0, at once or as late as they can. A call has at most five attempts, and the hedges
// cost a tenth each: together at most the budget's share of the calls, the burst and two hedges. A
// primary that fails with a pushback of 0 is not sent again.
func TestRule12_EveryHedgeIsTurnedAway(t *testing.T) {
	for _, tc := range []struct {
		name   string
		option grpc.DialOption
		budget float64
		takes  time.Duration // a hedge, before it is turned away
		silent bool          // a backend answers nothing
		fails  bool          // a primary
		opts   []hedge.Option
	}{
		{name: "at once", option: over(roundRobin)},
		{name: "late", option: over(roundRobin), takes: 80 * ms},
		{name: "connections", option: with(roundRobin, `"connections": 8`)},
		{name: "other backends only", option: over(roundRobin), opts: []hedge.Option{hedge.WithOtherBackendOnly(true)}},
		{name: "no policy", option: plain},
		{name: "a small budget", option: over(roundRobin), budget: 1},
		{name: "a silent backend", option: over(roundRobin), silent: true},
		{name: "primaries fail", option: over(roundRobin), fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				script := func(a testserver.Attempt) testserver.Plan {
					p := turnsHedgesAway(a)
					switch {
					case tc.silent && a.Backend == stalled:
						return testserver.Plan{Ending: testserver.Hang}
					case a.Number > 0:
						p.Delay = tc.takes
					case tc.fails:
						a.Number++
						return turnsHedgesAway(a)
					}
					return p
				}
				const rate = 50
				budget := cmp.Or(tc.budget, 10)
				s := hedgetest.All(t, append(tc.opts, hedge.WithBudgetPercent(budget),
					hedge.WithTrigger(hedge.Fixed(10*ms)))...)
				cluster, client := play(t, testserver.Config{Backends: 5, Script: script}, s, tc.option)
				all := traffic{kind: k, rate: rate, calls: 300, rng: generator(1, 2), deadline: time.Second,
					may: []codes.Code{codes.ResourceExhausted, codes.DeadlineExceeded}}.run(t, client)
				synctest.Wait()
				attempts := map[uint64]int{}
				for _, r := range cluster.Records() {
					// A stream that is canceled before its request has arrived has no id.
					if attempts[r.ID]++; attempts[r.ID] > 5 && r.ID > 0 {
						t.Fatalf("call %d has %d attempts", r.ID, attempts[r.ID])
					}
				}
				extra := float64(len(cluster.Records()) - len(all))
				cost := 0.1*extra + 0.9*float64(s.Stats().Hedges-s.Stats().PushedBack) // some were canceled
				burst := max(1, 1.5*2*rate*budget/100)                                 // the rate varies
				if cost > budget/100*float64(len(all))+burst+2 || tc.fails != (extra == 0) {
					t.Errorf("%v attempts beyond the first of %d calls cost %v", extra, len(all), cost)
				}
			})
		})
	}
}
