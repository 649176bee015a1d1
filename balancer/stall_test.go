package balancer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// The first of the backends stalls for a second in every five, as in a long garbage collection: what arrives then
// is answered after it.
const (
	stallEvery = 5 * time.Second
	stallFor   = time.Second
	stalled    = 0
)

// stallRun is what became of calls on the stalling cluster.
type stallRun struct {
	p50, p90, p99, p999 time.Duration
	hedges              int
	again               int // hedges that met the stalled backend though their call had met it before
	stats               stats.Counts
}

// runStall makes 200 calls a second, at random, for 10 seconds, or 20 with -hedge.long.
func runStall(t *testing.T, k kind, s *hedge.Scheduler, child grpc.DialOption) stallRun {
	cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: 1, DrawByID: true})
	client := testpb.NewTestServiceClient(dial(t, cluster, s, child))
	synctest.Wait()
	script := standstill(testserver.Uniform(2*ms, 8*ms), stallFor)(time.Now())
	cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
		plan := script(a)
		plan.HeaderAtOnce = true
		return plan
	})
	all := traffic{kind: k, rate: 200, calls: longtest.Size(2_000, 4_000), rng: generator(1, 2)}.mustSucceed(t, client)
	synctest.Wait()
	run := stallRun{p50: quantile(all, 0.50), p90: quantile(all, 0.90), p99: quantile(all, 0.99), p999: quantile(all, 0.999), stats: s.Stats()}
	met := map[uint64]bool{}
	for _, r := range cluster.Records() { // in the order of arrival
		if r.Number > 0 {
			run.hedges++
		}
		if r.Backend == stalled {
			if met[r.ID] {
				run.again++
			}
			met[r.ID] = true
		}
	}
	return run
}

// TestStalledBackend has what this package is for: the tail of calls to three backends of which one stalls.
func TestStalledBackend(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	plain := grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [` + roundRobin + `]}`)
	for _, k := range longtest.First(1, kinds) {
		t.Run(k.name, func(t *testing.T) {
			run := func(name string, child grpc.DialOption, opts ...hedge.Option) (r stallRun) {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := hedgetest.All(t, opts...)
						r = runStall(t, k, s, child)
						t.Logf("p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, p99.9 %.1f ms; %.1f%% extra load, %d of %d hedges met the stalled backend again",
							r.p50.Seconds()*1e3, r.p90.Seconds()*1e3, r.p99.Seconds()*1e3, r.p999.Seconds()*1e3,
							100*r.stats.HedgeRate(), r.again, r.hedges)
					})
				})
				return r
			}
			unhedged := run("round robin", plain, hedge.WithMaxHedges(0))
			for _, hedges := range longtest.First(1, []int{2, 1}) {
				// A third of the calls meets the stall while it lasts, which is more than the default of 10% pays for.
				opts := []hedge.Option{hedge.WithMaxHedges(hedges), hedge.WithBudgetPercent(20)}
				hedged := run(fmt.Sprintf("hedged, up to %d", hedges), plain, opts...)
				elsewhere := run(fmt.Sprintf("hedged elsewhere, up to %d", hedges), over(roundRobin), opts...)
				if elsewhere.again != 0 || elsewhere.stats.SameBackend != 0 {
					t.Errorf("%d hedges met the stalled backend again, %d a used one", elsewhere.again, elsewhere.stats.SameBackend)
				}
				if hedged.again == 0 {
					t.Error("without the policy no hedge met the stalled backend again: this shows nothing")
				}
				if elsewhere.p99 > unhedged.p99/20 || elsewhere.p99 > hedged.p99 {
					t.Errorf("p99 %v, %v, %v", unhedged.p99, hedged.p99, elsewhere.p99)
				}
			}
		})
	}
}
