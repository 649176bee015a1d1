package balancer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
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

// frozen makes calls with a deadline of 1 s to three backends of one worker, for two minutes in whose middle the first backend
// stands still for a minute. It returns how many fail in that minute and the next seconds.
func frozen(t *testing.T, load float64, seed uint64, option grpc.DialOption, opts ...hedge.Option) (calls, failed int, p99 time.Duration, row stats.Method) {
	const service, minute = 8 * ms, time.Minute
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, opts...)
		cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: seed, DrawByID: true, CountsOnly: true})
		client := testpb.NewTestServiceClient(dial(t, cluster, s, option))
		synctest.Wait()
		began, distribution := time.Now(), testserver.Exponential(service)
		var mu sync.Mutex
		var free [3]time.Time // when the backend has done all that has arrived, what was cancelled too
		cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
			mu.Lock()
			defer mu.Unlock()
			now, f := time.Now(), &free[a.Backend]
			if now.After(*f) {
				*f = now
			}
			if end := began.Add(2 * minute); a.Backend == stalled && now.Sub(began) >= minute && f.Before(end) {
				*f = end
			}
			*f = f.Add(a.Draw(distribution))
			return testserver.Plan{Delay: f.Sub(now)}
		})
		var took []time.Duration
		rng := rand.New(rand.NewPCG(seed, 2))
		var group sync.WaitGroup
		for id := uint64(0); time.Since(began) < 2*minute; id++ {
			counts := time.Since(began) >= minute
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				_, err := client.Unary(ctx, &testpb.Request{Id: id})
				mu.Lock()
				defer mu.Unlock()
				if counts {
					took = append(took, time.Since(began))
					if err != nil {
						failed++
					}
				}
			})
			time.Sleep(time.Duration(rng.ExpFloat64() / (3 * load) * float64(service)))
		}
		group.Wait()
		slices.Sort(took)
		calls, p99 = len(took), took[len(took)*99/100]
		row = s.Targets()[0]
	})
	return calls, failed, p99, row
}

// In TestSilence_Overload a backend stands still for a minute and the others have room for all of its calls, or for few.
func TestSilence_Overload(t *testing.T) {
	longtest.Simulation(t)
	plain := grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [` + roundRobin + `]}`)
	for _, load := range []float64{0.75, 0.85, 0.50} {
		t.Run(fmt.Sprintf("%.0f%%", 100*load), func(t *testing.T) {
			for seed := range uint64(longtest.Table(1, 1, 5)) {
				calls, unhedged, _, _ := frozen(t, load, seed, plain, hedge.WithMaxHedges(0))
				_, without, _, off := frozen(t, load, seed, with(roundRobin, `"silence": false`))
				_, failed, p99, row := frozen(t, load, seed, over(roundRobin))
				t.Logf("of %d calls fail %d plain, %d without silence (%.1f%% extra), %d with it (%.1f%% extra), p99 %v, %d moved", calls, unhedged, without, 100*off.HedgeRate(), failed, 100*row.HedgeRate(), p99, row.Moved)
				if float64(failed) > 1.01*float64(unhedged) {
					t.Errorf("%d calls fail, %d plain", failed, unhedged)
				}
			}
		})
	}
}
