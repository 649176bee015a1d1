package learn_test

import (
	"fmt"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
)

// TestAuto_HedgesThatSlowPrimaries has three backends with queues that also do work which was cancelled while it waited. At 90% of
// their capacity hedges win, and all calls become slower. At half of it there is room for them.
func TestAuto_HedgesThatSlowPrimaries(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct{ rate, least, most, slower float64 }{
		{rate: 224, least: 8, most: 10, slower: 1},
		{rate: 404, least: 0, most: 3, slower: 1.75}, // without a trial 5.6%, and 2.3 times as long
	} {
		t.Run(fmt.Sprintf("%v a second", tc.rate), func(t *testing.T) {
			var auto, plain, extra float64
			seeds := uint64(longtest.Size(2, 8))
			for seed := range seeds {
				run := func(hedges int) (mean, extra float64) {
					c := config()
					c.MaxHedges = hedges
					done := simulation{distribution: queued, calls: int(180 * tc.rate), rate: tc.rate, seed: 3 + seed, config: c,
						servers: servers{count: 3, workers: 4, finish: true}}.run().done
					done = done[len(done)/3:] // from the first minute on
					for _, o := range done {
						mean += o.took.Seconds() / float64(len(done))
					}
					return mean, load(done)
				}
				m, l := run(2)
				p, _ := run(0)
				auto, plain, extra = auto+m, plain+p, extra+l/float64(seeds)
			}
			t.Logf("load %.1f%%, mean %.2f times plain's", extra, auto/plain)
			if extra < tc.least || extra > tc.most || auto > tc.slower*plain {
				t.Errorf("want a load of %v to %v%%, and at most %v times plain's mean", tc.least, tc.most, tc.slower)
			}
		})
	}
}
