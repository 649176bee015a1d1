package balancer_test

import (
	"testing"
	"testing/synctest"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestDiscardedPicksAreReleased counts at the child: each of its picks is done once, those that are not taken with
// what gRPC says of a pick that it does not use, and no other with that.
func TestDiscardedPicksAreReleased(t *testing.T) {
	for _, backends := range []int{1, 3} {
		inBubble(t, func(t *testing.T, k kind) {
			const calls, hedges = 50, 2
			counts.picks.Store(0)
			counts.dones.Store(0)
			counts.unused.Store(0)
			cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true, Script: lastAnswers(hedges)})
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(hedges))
			client := testpb.NewTestServiceClient(dial(t, cluster, s, over(counting)))
			synctest.Wait()
			for id := range uint64(calls) {
				if _, err := k.call(t.Context(), client, &testpb.Request{Id: id}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			picks, dones, unused := counts.picks.Load(), counts.dones.Load(), counts.unused.Load()
			t.Logf("%d backends: %d picks for %d attempts, %d of them released", backends, picks, calls*(hedges+1), unused)
			if dones != picks || counts.twice.Load() {
				t.Errorf("%d picks were done %d times; one of them twice: %v", picks, dones, counts.twice.Load())
			}
			if unused != picks-calls*(hedges+1) || (unused > 0) != (backends > 1) {
				t.Errorf("%d picks were released, for %d picks", unused, picks)
			}
		})
	}
}
