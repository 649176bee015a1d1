package xds_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

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

// share makes 333 calls a second for 20 s to 15 backends, of which one is 40 ms farther than the
// others. It returns the share of primaries that this backend has in the second half.
func share(t *testing.T, policy string, opts ...hedge.Option) float64 {
	var all, there atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{Backends: 15, InMemory: true, CountsOnly: true})
		conn := cluster.ClientT(t, append(hedgetest.Interceptors(hedgetest.All(t, opts...)),
			grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, policy)))...)
		testserver.ConnectT(t, conn)
		synctest.Wait()
		client, began, usual := testpb.NewTestServiceClient(conn), time.Now(), testserver.LogNormal(5*ms, 2*ms)
		cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
			p := testserver.Plan{Delay: a.Draw(usual)}
			if a.Backend == 0 {
				p.Delay += 40 * ms
			}
			if a.Number == 0 && time.Since(began) > 10*time.Second {
				if all.Add(1); a.Backend == 0 {
					there.Add(1)
				}
			}
			return p
		})
		if failed := (simulation.Client{Rate: 333, Lasts: 20 * time.Second, Seed: 1}).Through(t,
			func(ctx context.Context, id uint64) error {
				_, err := client.Unary(ctx, &testpb.Request{Id: id})
				return err
			}).Failed(); failed > 0 {
			t.Errorf("%.1f%% of calls fail", failed)
		}
	})
	return float64(there.Load()) / float64(all.Load())
}

// In TestOutlierDetection nothing fails. The losers of hedged calls end with an error, for which
// gRPC's outlier_detection ejects the far backend, unless the policy is above it.
func TestOutlierDetection(t *testing.T) {
	longtest.Simulation(t)
	plain := share(t, fmt.Sprintf(outliers, roundRobin), hedge.WithMaxHedges(0))
	without := share(t, fmt.Sprintf(outliers, roundRobin))
	below := share(t, fmt.Sprintf(outliers, fmt.Sprintf(ours, roundRobin)))
	above := share(t, fmt.Sprintf(ours, fmt.Sprintf(outliers, roundRobin)))
	t.Logf("the far backend has %.1f%% of the primaries plain; hedged, %.1f%% without the policy, %.1f%% with it "+
		"below, %.1f%% above", 100*plain, 100*without, 100*below, 100*above)
	if above < 0.9*plain || without > 0.03 || below > 0.03 {
		t.Error("want 6.7%, 1% and less, 6.7%")
	}
}
