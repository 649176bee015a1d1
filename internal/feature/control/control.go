// Package control measures the gain of hedging for a method: it compares the calls that may be
// hedged with an unhedged control group.
package control

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Groups are the two groups of a method's calls.
type Groups struct {
	share  float64
	of     string                               // see For
	calls  atomic.Uint64                        // the number of draws
	took   [feature.Unhedged + 1]*sketch.Window // by group; nil for none
	hedges *sketch.Window                       // counts the hedges of the hedgeable calls
}

// compared is the length of the comparison. Its two-minute steps each hold several bunches of slow
// calls, and there are enough steps to estimate their variance.
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
		w.Mark(now) // so that the steps of all three begin together
		return w
	}
	g.took[feature.Hedgeable], g.took[feature.Unhedged], g.hedges = window(), window(), window()
	return g
}

// Draw puts a call that may be hedged into a group.
func (g *Groups) Draw() feature.Group {
	switch {
	case g == nil:
		return feature.NoGroup
	case sketch.HashUnit(g.calls.Add(1)) < g.share:
		return feature.Unhedged
	}
	return feature.Hedgeable
}

func (g *Groups) Admitted(d *feature.Due) {
	if d.Group == feature.Hedgeable {
		g.hedges.Record(d.Now, 0, true)
	}
}

// Ended records the latency of a call, or the time at which its caller gave up.
func (g *Groups) Ended(c *feature.CallState, e *feature.End) {
	answered := rpc.Answers.HasStatus(e.Err)
	if c.Group == feature.NoGroup || !c.Learns || !e.Known || !answered && !e.Gone {
		return
	}
	g.took[c.Group].Record(c.Start.Add(e.Age), e.Age, answered)
}

// Gain compares the groups at target, a quantile; nil without a control group.
func (g *Groups) Gain(now time.Time, target float64) *stats.Gain {
	if g == nil {
		return nil
	}
	hedged, unhedged := blocksOf(g.took[feature.Hedgeable], now), blocksOf(g.took[feature.Unhedged], now)
	gain := &stats.Gain{
		Over: g.over(now, hedged, unhedged), Calls: hedged.all.Total(), Control: unhedged.all.Total(),
		Percentile: math.Round(target*1e8) / 1e6, Hedged: hedged.quantile(target), Unhedged: unhedged.quantile(target),
	}
	gain.Measured = gain.Hedged.High > 0 && gain.Unhedged.High > 0
	if gain.Calls > 0 {
		gain.Load = float64(g.hedges.Snapshot(now).Total()) / float64(gain.Calls)
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
