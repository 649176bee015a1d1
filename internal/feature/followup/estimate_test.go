package followup_test

import (
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

func quantile(x []float64, q float64) float64 { return x[int(q*float64(len(x)))] }

// sample is what a run says of p99, as a share of the truth.
type sample struct{ said, low, high float64 }

func samplesOf(draw distribution, runs, calls int, rate float64, limit time.Duration) (all []sample, followed float64) {
	truth := quantile(primaries(draw, longtest.Size(400_000, 4_000_000)), 0.99) * ms
	for seed := range runs {
		w := newWorld(uint64(seed+1), draw, rate)
		w.limit = limit
		for range calls {
			w.call()
		}
		g := w.m.Measure(w.now)
		all = append(all, sample{float64(g.Unhedged.Value) / truth, float64(g.Unhedged.Low) / truth, float64(g.Unhedged.High) / truth})
		followed += float64(w.followed) / float64(runs)
	}
	return all, followed
}

func median(all []sample) float64 {
	slices.SortFunc(all, func(a, b sample) int { return int(1e6 * (a.said - b.said)) })
	return all[len(all)/2].said
}

// TestMeasure_Unhedged: what p99 would be without hedging is within 15% of the truth at the median of samples of 40,000
// calls, and the intervals hold it in 93 to 97% of 400 runs.
func TestMeasure_Unhedged(t *testing.T) {
	longtest.Computation(t)
	for _, d := range named {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			runs := longtest.Table(40, 100, 400)
			all, followed := samplesOf(d.draw, runs, 40_000, 500, 0)
			held, measured := 0, 0
			for _, s := range all {
				if s.high > 0 {
					measured++
				}
				if s.low <= 1 && 1 <= s.high {
					held++
				}
			}
			said := median(all)
			share := float64(held) / float64(measured)
			if measured < runs*9/10 {
				t.Errorf("p99 is measured in %d runs", measured)
			}
			t.Logf("said %.2f (%.2f to %.2f), the intervals hold %.1f%%, half wide %.2f, followed %.2f per 100 calls", said,
				all[runs/20].said, all[runs-1-runs/20].said, 100*share, (all[runs/2].high-all[runs/2].low)/2, followed/400)
			if said < 0.85 || said > 1.15 {
				t.Errorf("p99 is said to be %.2f of the truth", said)
			}
			if low, high := 0.93, 0.97; runs == 400 && (share < low || share > high) || share < 0.85 {
				t.Errorf("the intervals hold the truth in %.1f%% of the runs", 100*share)
			}
		})
	}
}

// TestMeasure_TenMinutes: over ten minutes at 500 calls a second the said p99 is within 5% of the truth at the median.
func TestMeasure_TenMinutes(t *testing.T) {
	longtest.Computation(t)
	for _, d := range longtest.First(2, named) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			runs := longtest.Table(3, 10, 40)
			all, followed := samplesOf(d.draw, runs, 300_000, 500, 0)
			said := median(all)
			t.Logf("said %.3f (%.3f to %.3f), followed %.2f per 100 calls", said, all[runs/20].said, all[runs-1-runs/20].said, followed/3000)
			if said < 0.95 || said > 1.05 {
				t.Errorf("p99 is said to be %.3f of the truth", said)
			}
		})
	}
}

// TestMeasure_Deadlines: callers and losers whose deadline passes are lower bounds. The intervals hold the truth below the
// deadline as often as without it.
func TestMeasure_Deadlines(t *testing.T) {
	longtest.Computation(t)
	runs, held := longtest.Table(40, 100, 400), 0
	all, _ := samplesOf(heavy2, runs, 40_000, 500, 130*time.Millisecond) // 0.6% of the primaries miss it
	for _, s := range all {
		if s.low <= 1 && 1 <= s.high {
			held++
		}
	}
	if said, share := median(all), float64(held)/float64(runs); said < 0.95 || said > 1.05 || share < 0.85 || runs == 400 && share < 0.93 {
		t.Errorf("said %.2f, the intervals hold %.1f%%", said, 100*share)
	}
}

// TestMeasure_FewFollowed: before 30 losers are known, the product-limit estimate stands in, without an interval.
func TestMeasure_FewFollowed(t *testing.T) {
	w := newWorld(1, straggler, 500)
	for range 1000 {
		w.call()
	}
	g := w.m.Measure(w.now)
	if g.Measured || g.Unhedged.Value == 0 || g.Unhedged.High != 0 || g.Saved != 0 || g.String() != "" {
		t.Errorf("%+v", g)
	}
}

// TestMeasure_Saved: what is said to be saved is what was saved.
func TestMeasure_Saved(t *testing.T) {
	longtest.Computation(t)
	for _, d := range named {
		t.Run(d.name, func(t *testing.T) {
			w := newWorld(3, d.draw, 500)
			w.run(10 * time.Minute)
			g := w.m.Measure(w.now)
			near(t, "calls", float64(g.Calls), float64(w.calls), 0.05*float64(w.calls))
			near(t, "load", g.Load, float64(w.hedges)/float64(w.calls), 0.004)
			per := w.saved / float64(w.calls)
			near(t, "saved per call", float64(g.Saved)/ms, per, 0.25*per)
			near(t, "saved per hedge", float64(g.SavedPerHedge)/ms, w.saved/float64(w.hedges), 0.25*w.saved/float64(w.hedges))
			near(t, "helped", g.Helped, float64(w.helped)/float64(w.calls), 0.004)
			near(t, "saved nothing", g.SavedNothing, 1-float64(w.helped)/float64(w.hedges), 0.07)
			near(t, "saved per helped", float64(g.SavedPerHelped)/float64(g.Saved)*g.Helped, 1, 0.05)
			slices.Sort(w.waits)
			near(t, "p99 with hedging", float64(g.Hedged)/ms, quantile(w.waits, 0.99), 0.02*quantile(w.waits, 0.99))
			if g.SavedP50 <= 0 || g.SavedP90 < g.SavedP50 {
				t.Errorf("percentiles of what was saved: %v, %v", g.SavedP50, g.SavedP90)
			}
		})
	}
}
