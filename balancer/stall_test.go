package balancer_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/stats"
)

// The first backend stalls for a second in every five, as in a long garbage collection: it answers
// calls that arrive in this second afterwards.
const (
	stallEvery = 5 * time.Second
	stallFor   = time.Second
	stalled    = 0
)

// runStall makes 200 calls per second at random times, for 20 seconds. again is the number of
// hedges of calls that had used the stalled backend before.
func runStall(t *testing.T, k kind, option grpc.DialOption, opts ...hedge.Option) (r simulated, again int) {
	r = simulate(t, testserver.Config{Seed: 1}, option, func(began time.Time) testserver.Script {
		script := standstill(testserver.Uniform(2*ms, 8*ms), stallFor)(began)
		return func(a testserver.Attempt) testserver.Plan {
			plan := script(a)
			plan.HeaderAtOnce = true
			return plan
		}
	}, traffic{kind: k, rate: 200, calls: 4_000, rng: generator(1, 2)}, opts...)
	met := map[uint64]bool{}
	for _, record := range r.records { // in the order of arrival
		if record.Backend == stalled {
			if met[record.ID] {
				again++
			}
			met[record.ID] = true
		}
	}
	return r, again
}

// TestStalledBackend measures the tail of calls to three backends, one of them stalled for a while.
func TestStalledBackend(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			run := func(name string, option grpc.DialOption, opts ...hedge.Option) (time.Duration, int, stats.Method) {
				r, again := runStall(t, k, option, opts...)
				p99 := r.all.Tail(0.99)
				t.Logf("%s: p50 %v, p99 %v, p99.9 %v; %.1f%% extra load, %d of %d hedges met the stalled backend again",
					name, r.all.Tail(0.50), p99, r.all.Tail(0.999), 100*r.row.HedgeRate(), again, r.row.Hedges)
				return p99, again, r.row
			}
			unhedged, _, _ := run("round robin", plain, hedge.WithMaxHedges(0))
			fewest, _, _ := run("least request", bare(leastRequest), hedge.WithMaxHedges(0))
			both, _, _ := run("least request, hedged elsewhere", over(leastRequest))
			if both > fewest/4 {
				t.Errorf("p99 with least request %v, hedged %v", fewest, both)
			}
			for _, hedges := range []int{2, 1} {
				// A third of the calls meets the stall while it lasts, which is more than the
				// default of 10% pays for.
				opts := []hedge.Option{hedge.WithMaxHedges(hedges), hedge.WithBudgetPercent(20)}
				hedged, again, _ := run(fmt.Sprintf("hedged, up to %d", hedges), plain, opts...)
				elsewhere, never, row := run(fmt.Sprintf("hedged elsewhere, up to %d", hedges), over(roundRobin), opts...)
				if never != 0 || row.SameBackend != 0 {
					t.Errorf("%d hedges met the stalled backend again, %d a used one", never, row.SameBackend)
				}
				if again == 0 {
					t.Error("without the policy no hedge met the stalled backend again: this shows nothing")
				}
				if elsewhere > unhedged/20 || elsewhere > hedged {
					t.Errorf("p99 %v, %v, %v", unhedged, hedged, elsewhere)
				}
			}
		})
	}
}
