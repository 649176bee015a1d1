package control

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

// blocks are the calls of a group, in periods.
//
// Slow calls come in bunches, so calls are not independent of each other, and the binomial interval
// of a quantile is too narrow. Periods much longer than a bunch are nearly independent. So an
// estimate's variance is taken from the variance between periods, by the ratio estimator for
// clusters (Cochran, "Sampling Techniques", 1977, chapter 6).
type blocks struct {
	all    *sketch.Distribution
	blocks map[int64]*sketch.Distribution // by the number of the period; those without calls are absent
}

func blocksOf(w *sketch.Window, now time.Time) blocks { return blocks{w.Snapshot(now), w.Steps(now)} }

// quantile returns a quantile with its 95% interval: the quantiles at q minus and plus the
// half-width of the interval of the share of calls beyond it (Woodruff, "Confidence Intervals for
// Medians and Other Position Measures", JASA 1952). The interval is unknown if fewer than five
// calls are expected beyond the quantile.
func (b blocks) quantile(q float64) (i stats.Interval) {
	i.Value, _ = b.all.Quantile(q)
	calls, beyond := float64(b.all.Total()), b.all.Beyond(i.Value)
	if calls*(1-q) < 5 {
		return i
	}
	var parts []float64
	for _, block := range b.blocks {
		parts = append(parts, float64(block.Total())/calls*(block.Beyond(i.Value)-beyond))
	}
	if within, known := spread(parts); known && within < min(q, 1-q) {
		i.Low, _ = b.all.Quantile(q - within)
		i.High, _ = b.all.Quantile(q + within)
	}
	return i
}

// saved returns the mean latency of the unhedged minus the mean latency of the hedged, with its 95%
// interval. Both meet the same bunches of slow calls, so the interval comes from the
// differences per period.
func saved(unhedged, hedged blocks) (i stats.Interval) {
	i.Value = unhedged.all.Mean() - hedged.all.Mean()
	var parts []float64
	for at := range hedged.blocks {
		if unhedged.blocks[at] != nil {
			parts = append(parts, unhedged.excess(at)-hedged.excess(at))
		}
	}
	if within, known := spread(parts); known {
		i.Low, i.High = i.Value-time.Duration(within), i.Value+time.Duration(within)
	}
	return i
}

// excess is the amount by which the calls of a period raise the mean of the group, in nanoseconds.
func (b blocks) excess(at int64) float64 {
	block := b.blocks[at]
	return float64(block.Total()) / float64(b.all.Total()) * float64(block.Mean()-b.all.Mean())
}

// spread returns the half-width of the 95% confidence interval, given each period's contribution to
// the error. It needs minPeriods periods.
func spread(parts []float64) (within float64, known bool) {
	n, sum := len(parts), 0.0
	if n < minPeriods {
		return 0, false
	}
	for _, z := range parts {
		sum += z * z
	}
	return student[n-minPeriods] * math.Sqrt(sum*float64(n)/float64(n-1)), true
}

// student[i] is the 0.975 quantile of Student's t for minPeriods + i periods.
var student = [...]float64{2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131}

const minPeriods = 5
