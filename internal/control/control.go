// Package control measures the gain of hedging for a method: it compares the calls that may be
// hedged with an unhedged control group.
package control

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

type Group uint8

const (
	NoGroup Group = iota // the method has no control group, or the call cannot be hedged
	Hedgeable
	Unhedged // the control group
)

// Groups are the two groups of a method's calls. Without groups, which are nil, every call is in
// NoGroup.
type Groups struct {
	share  float64
	of     string                       // see For
	calls  atomic.Uint64                // the number of draws
	took   [Unhedged + 1]*sketch.Window // by group; nil for none
	hedges *sketch.Window               // counts the hedges of the hedgeable calls
	away   *sketch.Window               // counts the hedges that were turned away
}

// compared is the length of the comparison. Its two-minute steps each hold several bunches of slow
// calls.
const compared = 30 * time.Minute

// For returns the groups for a share of the calls; nil for a share of 0. of describes how the other
// calls are hedged. It returns old, which may be nil, if share and of are unchanged.
func For(share float64, of string, old *Groups) *Groups {
	if old != nil && old.share == share && old.of == of {
		return old
	}
	if share == 0 {
		return nil
	}
	g := &Groups{share: share, of: of}
	now := time.Now()
	window := func() *sketch.Window {
		w := sketch.New(compared)
		w.Mark(now) // so that the steps of all windows begin together
		return w
	}
	g.took[Hedgeable], g.took[Unhedged], g.hedges, g.away = window(), window(), window(), window()
	return g
}

// Draw returns the group of a call.
func (g *Groups) Draw() Group {
	if sketch.HashUnit(g.calls.Add(1)) < g.share {
		return Unhedged
	}
	return Hedgeable
}

// HedgeSent counts a hedge of a call in the group Hedgeable.
func (g *Groups) HedgeSent(now time.Time) { g.hedges.Record(now, 0, true) }

// TurnedAway counts a hedge that its server turned away.
func (g *Groups) TurnedAway(now time.Time) { g.away.Record(now, 0, true) }

// Ended records the latency of a call in a group that ended at now. If answered is false, its caller
// gave up.
func (g *Groups) Ended(of Group, now time.Time, latency time.Duration, answered bool) {
	g.took[of].Record(now, latency, answered)
}

// Gain compares the groups; nil without a control group.
func (g *Groups) Gain(now time.Time) *stats.Gain {
	if g == nil {
		return nil
	}
	hedged, unhedged := blocksOf(g.took[Hedgeable], now), blocksOf(g.took[Unhedged], now)
	gain := &stats.Gain{
		Over: g.over(now, hedged, unhedged), Calls: hedged.all.Total(), Control: unhedged.all.Total(),
		Hedged: hedged.p99(), Unhedged: unhedged.p99(),
	}
	gain.Measured = gain.Hedged.High > 0 && gain.Unhedged.High > 0
	if gain.Calls > 0 {
		sent, away := g.hedges.Snapshot(now).Total(), g.away.Snapshot(now).Total()
		gain.Load = stats.Counts{Calls: gain.Calls, Hedges: sent, TurnedAway: away}.HedgeRate()
	}
	if gain.Calls > 0 && gain.Control > 0 {
		gain.Saved = saved(unhedged, hedged)
		if gain.Load > 0 {
			per := func(d time.Duration) time.Duration { return time.Duration(float64(d) / gain.Load) }
			gain.SavedPerHedge = stats.Interval{Value: per(gain.Saved.Value), Low: per(gain.Saved.Low),
				High: per(gain.Saved.High)}
		}
	}
	return gain
}

// over returns the time since the start of the first period with calls.
func (g *Groups) over(now time.Time, groups ...blocks) time.Duration {
	at := int64(g.hedges.Mark(now))
	first := at + 1
	for _, group := range groups {
		for period := range group.blocks {
			first = min(first, period)
		}
	}
	return time.Duration(at+1-first) * g.hedges.Step()
}

// blocks are the calls of a group, in periods. Slow calls come in bunches, so calls are not
// independent, but periods much longer than a bunch nearly are. An estimate's variance is therefore
// taken from the variance between periods, by the ratio estimator for clusters (Cochran, "Sampling
// Techniques", 1977, chapter 6).
type blocks struct {
	all    *sketch.Distribution
	blocks map[int64]*sketch.Distribution // by the number of the period; those without calls are absent
}

func blocksOf(w *sketch.Window, now time.Time) blocks { return blocks{w.Snapshot(now), w.Steps(now)} }

// p99 returns the p99 with its 95% interval: the quantiles at 0.99 minus and plus the
// half-width of the interval of the share of calls beyond it (Woodruff, "Confidence Intervals for
// Medians and Other Position Measures", JASA 1952), which needs five calls.
func (b blocks) p99() (i stats.Interval) {
	const q = 0.99
	i.Value, _ = b.all.Quantile(q)
	calls, beyond := float64(b.all.Total()), b.all.Beyond(i.Value)
	if calls*(1-q) < 5 {
		return i
	}
	var parts []float64
	for _, block := range b.blocks {
		parts = append(parts, float64(block.Total())/calls*(block.Beyond(i.Value)-beyond))
	}
	if within, known := spread(parts); known && within < 1-q {
		i.Low, _ = b.all.Quantile(q - within)
		i.High, _ = b.all.Quantile(q + within)
	}
	return i
}

// saved returns the mean latency of the unhedged minus that of the hedged, with its 95% interval,
// from the differences per period: both meet the same bunches of slow calls.
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
