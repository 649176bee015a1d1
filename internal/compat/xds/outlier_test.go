package xds_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

const (
	roundRobin = `{"round_robin": {}}`
	outliers   = `{"outlier_detection_experimental": {"interval": "1s", "maxEjectionPercent": 50, "childPolicy": [%s],
		"failurePercentageEjection": {"threshold": 50, "enforcementPercentage": 100,
			"minimumHosts": 1, "requestVolume": 10}}}`
	ours = `{"hedge_other_backend": {"childPolicy": [%s]}}`
)

// share makes 333 calls a second for 20 s. It returns the share of primaries that the first backend
// has in the second half, how many calls failed then, and all hedges.
func share(t *testing.T, policy string, backends int, script testserver.Script,
	opts ...hedge.Option) (share float64, failed, hedges int64) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, opts...)
		cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true, CountsOnly: true})
		conn := cluster.ClientT(t, append(hedgetest.Interceptors(s),
			grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, policy)))...)
		testserver.ConnectT(t, conn)
		client := testpb.NewTestServiceClient(conn)
		synctest.Wait()
		began := time.Now()
		var all, there, failures atomic.Int64
		cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
			if a.Number == 0 && time.Since(began) > 10*time.Second {
				if all.Add(1); a.Backend == 0 {
					there.Add(1)
				}
			}
			return script(a)
		})
		rng := rand.New(rand.NewPCG(1, 2))
		var group sync.WaitGroup
		for id := uint64(0); time.Since(began) < 20*time.Second; id++ {
			counts := time.Since(began) > 10*time.Second
			group.Go(func() {
				if _, err := client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil && counts {
					failures.Add(1)
				}
			})
			time.Sleep(time.Duration(rng.ExpFloat64() * float64(3*ms)))
		}
		group.Wait()
		share, failed, hedges = float64(there.Load())/float64(all.Load()), failures.Load(), s.Stats().Hedges
	})
	return share, failed, hedges
}

// In TestOutlierDetection one of 15 backends is 40 ms farther than the others, and nothing fails.
// The losers of hedged calls end with an error, for which gRPC's outlier_detection ejects that
// backend, unless the policy is above it.
func TestOutlierDetection(t *testing.T) {
	longtest.Simulation(t)
	usual := testserver.LogNormal(5*ms, 2*ms)
	far := func(a testserver.Attempt) testserver.Plan {
		p := testserver.Plan{Delay: a.Draw(usual)}
		if a.Backend == 0 {
			p.Delay += 40 * ms
		}
		return p
	}
	plain, _, _ := share(t, fmt.Sprintf(outliers, roundRobin), 15, far, hedge.WithMaxHedges(0))
	without, _, _ := share(t, fmt.Sprintf(outliers, roundRobin), 15, far)
	below, _, _ := share(t, fmt.Sprintf(outliers, fmt.Sprintf(ours, roundRobin)), 15, far)
	above, failed, hedges := share(t, fmt.Sprintf(ours, fmt.Sprintf(outliers, roundRobin)), 15, far)
	t.Logf("the far backend has %.1f%% of the primaries plain; hedged, %.1f%% without the policy, %.1f%% with it "+
		"below, %.1f%% above, %d hedges",
		100*plain, 100*without, 100*below, 100*above, hedges)
	if above < 0.9*plain || failed > 0 || without > 0.03 || below > 0.03 {
		t.Errorf("%d calls failed; want 6.7%%, 1%% and less, 6.7%%", failed)
	}
}

// In TestOutlierDetection_Ejects the first of two backends fails, and outlier detection ejects it
// below the policy as it does without. Hedges of calls that are slow at the other one do not go
// there either.
func TestOutlierDetection_Ejects(t *testing.T) {
	longtest.Simulation(t)
	script := func(attempts *atomic.Int64) testserver.Script {
		usual := testserver.LogNormal(5*ms, 2*ms)
		return func(a testserver.Attempt) testserver.Plan {
			p := testserver.Plan{Delay: a.Draw(usual)}
			switch {
			case a.Backend == 0:
				attempts.Add(1)
				p = testserver.Plan{Code: codes.Unavailable}
			case a.ID%20 == 0:
				p.Delay = 100 * ms
			}
			return p
		}
	}
	var plain, hedged atomic.Int64
	share(t, fmt.Sprintf(outliers, roundRobin), 2, script(&plain), hedge.WithMaxHedges(0))
	_, _, hedges := share(t, fmt.Sprintf(ours, fmt.Sprintf(outliers, roundRobin)), 2, script(&hedged))
	t.Logf("%d attempts meet the backend that fails plain, %d hedged, of %d hedges", plain.Load(), hedged.Load(), hedges)
	if hedges < 50 || float64(hedged.Load()) > 1.1*float64(plain.Load()) {
		t.Error("hedges went to a backend that was ejected")
	}
}
