package xds_test

import (
	"context"
	"fmt"
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
	"github.com/grpchedge/hedge/internal/testserver/simulation"
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
// has in the second half, all attempts that it has, the calls that failed in percent, and the hedges.
func share(t *testing.T, policy string, backends int, script testserver.Script,
	opts ...hedge.Option) (share float64, attempts int64, failed float64, hedges int64) {
	var all, there, any atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, opts...)
		cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true, CountsOnly: true})
		conn := cluster.ClientT(t, append(hedgetest.Interceptors(s),
			grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, policy)))...)
		testserver.ConnectT(t, conn)
		synctest.Wait()
		client, began := testpb.NewTestServiceClient(conn), time.Now()
		cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
			if a.Backend == 0 {
				any.Add(1)
			}
			if a.Number == 0 && time.Since(began) > 10*time.Second {
				if all.Add(1); a.Backend == 0 {
					there.Add(1)
				}
			}
			return script(a)
		})
		failed = (simulation.Client{Rate: 333, Lasts: 20 * time.Second, Seed: 1}).Through(t,
			func(ctx context.Context, id uint64) error {
				_, err := client.Unary(ctx, &testpb.Request{Id: id})
				return err
			}).Failed()
		hedges = s.Stats().Hedges
	})
	return float64(there.Load()) / float64(all.Load()), any.Load(), failed, hedges
}

// usual is the latency of a backend that is well.
var usual = testserver.LogNormal(5*ms, 2*ms)

// In TestOutlierDetection one of 15 backends is 40 ms farther than the others, and nothing fails.
// The losers of hedged calls end with an error, for which gRPC's outlier_detection ejects that
// backend, unless the policy is above it.
func TestOutlierDetection(t *testing.T) {
	longtest.Simulation(t)
	far := func(policy string, opts ...hedge.Option) float64 {
		there, _, failed, _ := share(t, policy, 15, func(a testserver.Attempt) testserver.Plan {
			p := testserver.Plan{Delay: a.Draw(usual)}
			if a.Backend == 0 {
				p.Delay += 40 * ms
			}
			return p
		}, opts...)
		if failed > 0 {
			t.Errorf("%s: %.1f%% of calls fail", policy, failed)
		}
		return there
	}
	plain := far(fmt.Sprintf(outliers, roundRobin), hedge.WithMaxHedges(0))
	without := far(fmt.Sprintf(outliers, roundRobin))
	below := far(fmt.Sprintf(outliers, fmt.Sprintf(ours, roundRobin)))
	above := far(fmt.Sprintf(ours, fmt.Sprintf(outliers, roundRobin)))
	t.Logf("the far backend has %.1f%% of the primaries plain; hedged, %.1f%% without the policy, %.1f%% with it "+
		"below, %.1f%% above", 100*plain, 100*without, 100*below, 100*above)
	if above < 0.9*plain || without > 0.03 || below > 0.03 {
		t.Error("want 6.7%, 1% and less, 6.7%")
	}
}

// In TestOutlierDetection_Ejects the first of two backends fails, and outlier detection ejects it
// below the policy as it does without. Hedges of calls that are slow at the other one do not go
// there either.
func TestOutlierDetection_Ejects(t *testing.T) {
	longtest.Simulation(t)
	fails := func(a testserver.Attempt) testserver.Plan {
		p := testserver.Plan{Delay: a.Draw(usual)}
		switch {
		case a.Backend == 0:
			p = testserver.Plan{Code: codes.Unavailable}
		case a.ID%20 == 0:
			p.Delay = 100 * ms
		}
		return p
	}
	_, plain, _, _ := share(t, fmt.Sprintf(outliers, roundRobin), 2, fails, hedge.WithMaxHedges(0))
	_, hedged, _, hedges := share(t, fmt.Sprintf(ours, fmt.Sprintf(outliers, roundRobin)), 2, fails)
	t.Logf("%d attempts meet the backend that fails plain, %d hedged, of %d hedges", plain, hedged, hedges)
	if hedges < 50 || float64(hedged) > 1.1*float64(plain) {
		t.Errorf("the ejected backend got %d attempts, %d plain, of %d hedges", hedged, plain, hedges)
	}
}
