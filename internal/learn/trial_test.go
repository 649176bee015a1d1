package learn_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// TestAuto_HedgesThatSlowPrimaries has three backends with queues that also do work which was cancelled while it waited. At 90% of
// their capacity hedges win, and all calls become slower. At half of it there is room for them.
func TestAuto_HedgesThatSlowPrimaries(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct{ rate, least, most, slower float64 }{
		{rate: 224, least: 8, most: 10, slower: 1},
		{rate: 404, least: 0, most: 3.9, slower: 1.9}, // without a trial 5.5%, and 2.36 times as long
	} {
		t.Run(fmt.Sprintf("%v a second", tc.rate), func(t *testing.T) {
			var auto, plain, extra float64
			seeds := uint64(longtest.Size(2, 8))
			for seed := range seeds {
				run := func(hedges int) (mean, extra float64) {
					c := config()
					c.MaxHedges = hedges
					done := client{distribution: queued, calls: int(180 * tc.rate), rate: tc.rate, seed: 3 + seed, config: c,
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

// TestAuto_HedgesAreBackAtNight has traffic fall to a call a second after two minutes near saturation, as in TestAuto_HedgesThatSlowPrimaries:
// periods with few hedges end though there are few calls.
func TestAuto_HedgesAreBackAtNight(t *testing.T) {
	longtest.Computation(t)
	night := func(busy time.Duration) (all []outcome) {
		for seed := range uint64(longtest.Size(3, 12)) {
			done := client{distribution: queued, calls: int(404*busy.Seconds()) + 1000, seed: 1 + seed, config: config(), servers: servers{count: 3, workers: 4, finish: true},
				rateAt: func(at time.Duration) float64 {
					if at < busy {
						return 404
					}
					return 1
				}}.run().done
			for _, o := range done {
				if o.at > busy+5*time.Minute {
					all = append(all, o)
				}
			}
		}
		return all
	}
	after, quiet := load(night(2*time.Minute)), load(night(0))
	t.Logf("load %.1f%%, %.1f%% where it was always quiet", after, quiet)
	if quiet < 1 || after < quiet/2 {
		t.Error("few hedges are sent where there is room for many")
	}
}
