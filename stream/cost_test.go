package stream_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// tokensOf is the length of a prompt: 100 to 8,000 tokens, most of them short.
func tokensOf(id uint64) int {
	u := rand.New(rand.NewPCG(id, 1)).Float64()
	return 100 + int(7900*u*u*u)
}

// A prompt takes as long as it has tokens, and one in ten misses the cache and takes 200 ms more. So long prompts are hedged more often
// than short ones. With WithCost the extra tokens that the server reads stay within the budget; without, they do not.
func TestCost_OfPrompts(t *testing.T) {
	longtest.Simulation(t)
	calls := longtest.Size(3_000, 20_000)
	extra := func(opts ...hedge.Option) (share float64) {
		synctest.Test(t, func(t *testing.T) {
			var primaries, hedges atomic.Int64
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, CountsOnly: true, Script: func(a testserver.Attempt) testserver.Plan {
				read := &primaries
				if a.Number > 0 {
					read = &hedges
				}
				read.Add(int64(tokensOf(a.ID)))
				delay := 10*ms + time.Duration(tokensOf(a.ID))*20*time.Microsecond
				if a.Draw(testserver.Uniform(0, 10*time.Second)) < time.Second {
					delay += 200 * ms
				}
				return testserver.Plan{Delay: delay, HeaderAtOnce: true, Messages: 1}
			}})
			s := hedgetest.All(t, append(opts, hedge.WithTrigger(hedge.Percentile(0.9)))...)
			client := dial(t, cluster, s)
			var callers sync.WaitGroup
			for id := range uint64(calls) {
				callers.Go(func() {
					request := &testpb.Request{Id: id}
					st, err := client.ServerStream(t.Context(), request)
					if err != nil {
						t.Error(err)
						return
					}
					if _, _, err := receive(st, request); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(10 * ms)
			}
			callers.Wait()
			share = float64(hedges.Load()) / float64(primaries.Load())
		})
		return share
	}
	calling := extra()
	costing := extra(hedge.WithCost(func(_ context.Context, _ string, request any) float64 {
		return float64(tokensOf(request.(*testpb.Request).Id)) / 1000
	}))
	t.Logf("extra tokens read: %.1f%% with WithCost, %.1f%% without", 100*costing, 100*calling)
	if costing > 0.105 {
		t.Errorf("extra tokens read: %.1f%% with WithCost, want at most 10.5%%", 100*costing)
	}
	if calling < 0.11 {
		t.Errorf("extra tokens read: %.1f%% without WithCost: this test shows nothing", 100*calling)
	}
}
