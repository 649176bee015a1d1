package trigger_test

import (
	"math"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
)

// TestUnhedgedTail compares the estimate of p99 without hedging with the truth, where requests differ
// and where all attempts wait for the same thing.
func TestUnhedgedTail(t *testing.T) {
	longtest.Computation(t)
	for _, w := range worlds.Natural() {
		truth, seeds := w.Run(1, worlds.Never).Result().All[3], longtest.Size(1, 6)
		mean, least, most, said := 0.0, math.Inf(1), 0.0, 0.0
		for seed := range seeds {
			s := w.Run(uint64(seed+1), worlds.Auto)
			e := s.Learner.Estimate()
			if e.Choice.UnhedgedTail == 0 {
				continue
			}
			ratio := float64(e.Choice.UnhedgedTail) / float64(ms) / truth
			mean, least, most, said = mean+math.Log(ratio), min(least, ratio), max(most, ratio), said+1
		}
		mean = math.Exp(mean / said)
		r := w.Mean(worlds.Auto, seeds)
		t.Logf("%-45s p99 %3.0f ms; said/true %.2f (%.2f to %.2f) in %v of %d runs; load %.1f%%, p99 %.0f, p99.9 %.0f",
			w.Name, truth, mean, least, most, said, seeds, r.Load, r.All[3], r.All[4])
		if !(mean > .7 && mean < 1.4) {
			t.Errorf("%s: p99 without hedging is estimated as %.2f times the truth", w.Name, mean)
		}
	}
}
