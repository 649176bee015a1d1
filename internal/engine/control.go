package engine

import (
	"github.com/grpchedge/hedge/internal/codeset"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// groups are the two groups of a method's calls.
type groups struct {
	memory              sketch.Meter
	share               float64
	calls               atomic.Uint64 // drawn so far
	hedgeable, unhedged *sketch.Window
	hedges              *sketch.Window // counts
}

const compared = 10 * time.Minute

// newGroups returns nil without a control group.
func newGroups(share float64, memory *sketch.Meter) *groups {
	if share == 0 {
		return nil
	}
	g := &groups{share: share}
	g.memory.PartOf(memory)
	g.memory.Add(groupsBytes)
	window := func() *sketch.Window { return sketch.NewIn(&g.memory, compared) }
	g.hedgeable, g.unhedged, g.hedges = window(), window(), window()
	return g
}

// release says that no further call joins the groups.
func (g *groups) release() {
	if g != nil {
		g.memory.Release()
	}
}

const groupsBytes = int64(unsafe.Sizeof(groups{}))

// draw puts a call that may be hedged into a group.
func (g *groups) draw() membership {
	switch {
	case g == nil:
		return inNoGroup
	case float64(scramble(g.calls.Add(1))>>11)/(1<<53) < g.share:
		return unhedgedGroup
	}
	return hedgeableGroup
}

// scramble makes a number that looks like chance of each number: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014). No pattern of traffic can be in step with it.
func scramble(n uint64) uint64 {
	n *= 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// membership is the group that a call belongs to.
type membership uint8

const (
	inNoGroup membership = iota
	hedgeableGroup
	unhedgedGroup
)

// ended records that a call of a group took d, or that its caller gave up then.
func (g *groups) ended(in membership, now time.Time, d time.Duration, answered bool) {
	var w *sketch.Window
	switch in {
	case inNoGroup:
		return
	case hedgeableGroup:
		w = g.hedgeable
	case unhedgedGroup:
		w = g.unhedged
	}
	if answered {
		w.Observe(now, d)
	} else {
		w.ObserveLonger(now, d)
	}
}

// compare records what the call took for its caller, or that its caller gave up then. Only the first time counts.
func (c *Call) compare(err error, age time.Duration, gone bool) {
	if answered := codeset.Answers.HasStatus(err); c.group != inNoGroup && c.Learns() && (answered || gone) {
		c.settings.groups.ended(c.group, c.start.Add(age), age, answered)
		c.group = inNoGroup
	}
}

// sent counts a hedge of a call.
func (g *groups) sent(in membership, now time.Time) {
	if in == hedgeableGroup {
		g.hedges.Observe(now, 0)
	}
}

// compare returns what is known of both groups; nil without a control group. The tail is that of the unhedged at the target, a
// quantile; 0 while too few calls are known.
func (g *groups) compare(now time.Time, target float64) (c *stats.Control, tail time.Duration) {
	if g == nil {
		return nil, 0
	}
	hedgeable, unhedged := g.hedgeable.Snapshot(now), g.unhedged.Snapshot(now)
	c = &stats.Control{Hedgeable: newGroup(hedgeable), Unhedged: newGroup(unhedged)}
	if at := interval(unhedged, target); at.High > 0 {
		tail = at.Value
	}
	if hedges := g.hedges.Snapshot(now).Total(); hedges > 0 && c.Unhedged.Calls > 0 && c.Hedgeable.Calls > 0 {
		saved := float64(unhedged.Mean()-hedgeable.Mean()) * float64(c.Hedgeable.Calls)
		c.SavedPerHedge = time.Duration(saved / float64(hedges))
	}
	return c, tail
}

func newGroup(d *sketch.Distribution) stats.Group {
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
