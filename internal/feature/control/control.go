// Package control compares the calls of a method that may be hedged with a control group that never is.
package control

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Groups are the two groups of a method's calls.
type Groups struct {
	memory sketch.Meter
	share  float64
	calls  atomic.Uint64                        // drawn so far
	took   [feature.Unhedged + 1]*sketch.Window // by group; nil for none
	hedges *sketch.Window                       // its calls are the hedges of the hedgeable; what they took is 0
}

const compared = 10 * time.Minute

// For returns the groups for a share of the calls, and nil for a share of 0. If the old groups, which may be nil, have that share,
// it returns them. Otherwise it takes their memory out of what the meter counts, and no further call must join them.
func For(share float64, old *Groups, memory *sketch.Meter) *Groups {
	if old != nil {
		if old.share == share {
			return old
		}
		old.memory.Release()
	}
	if share == 0 {
		return nil
	}
	g := &Groups{share: share}
	g.memory.PartOf(memory)
	g.memory.Add(int64(unsafe.Sizeof(*g)))
	window := func() *sketch.Window { return sketch.NewIn(&g.memory, compared) }
	g.took[feature.Hedgeable], g.took[feature.Unhedged], g.hedges = window(), window(), window()
	return g
}

// Draw puts a call that may be hedged into a group.
func (g *Groups) Draw() feature.Group {
	switch {
	case g == nil:
		return feature.NoGroup
	case feature.Chance(g.calls.Add(1)) < g.share:
		return feature.Unhedged
	}
	return feature.Hedgeable
}

func (g *Groups) Admitted(d *feature.Due) {
	if d.Group == feature.Hedgeable {
		g.hedges.Observe(d.Now, 0)
	}
}

// Ended records what a call took for its caller, or that its caller gave up then.
func (g *Groups) Ended(c *feature.Call, e *feature.End) {
	answered := codeset.Answers.HasStatus(e.Err)
	if c.Group == feature.NoGroup || !c.Learns || !e.Known || !answered && !e.Gone {
		return
	}
	g.took[c.Group].Record(c.Start.Add(e.Age), e.Age, answered)
}

// Compare returns what is known of both groups; nil without a control group. The tail is that of the unhedged at the target, a
// quantile; 0 while too few calls are known.
func (g *Groups) Compare(now time.Time, target float64) (c *stats.Control, tail time.Duration) {
	if g == nil {
		return nil, 0
	}
	hedgeable, unhedged := g.took[feature.Hedgeable].Snapshot(now), g.took[feature.Unhedged].Snapshot(now)
	c = &stats.Control{Hedgeable: group(hedgeable), Unhedged: group(unhedged)}
	if at := interval(unhedged, target); at.High > 0 {
		tail = at.Value
	}
	if hedges := g.hedges.Snapshot(now).Total(); hedges > 0 && c.Unhedged.Calls > 0 && c.Hedgeable.Calls > 0 {
		saved := float64(unhedged.Mean()-hedgeable.Mean()) * float64(c.Hedgeable.Calls)
		c.SavedPerHedge = time.Duration(saved / float64(hedges))
	}
	return c, tail
}

func group(d *sketch.Distribution) stats.Group {
	return stats.Group{Calls: d.Total(), P50: interval(d, 0.50), P99: interval(d, 0.99), P999: interval(d, 0.999)}
}

// interval is a quantile with its interval of confidence by ranks: the share of calls below the true quantile is q within
// 1.96·√(q·(1−q)/n), as the binomial distribution has it.
func interval(d *sketch.Distribution, q float64) stats.Interval {
	var i stats.Interval
	within := 1.96 * math.Sqrt(q*(1-q)/float64(max(d.Total(), 1)))
	i.Value, _ = d.Quantile(q)
	i.Low, _ = d.Quantile(q - within)
	i.High, _ = d.Quantile(q + within)
	return i
}
