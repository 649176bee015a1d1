package hedge

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/latency"
)

// WithControl leaves a share of the calls that may be hedged unhedged, to be compared with the others: percent of them, 0 to
// 50; the default is 0. They are drawn by chance, call by call, so both groups see the same requests, backends and hours.
// [TargetStats] has the comparison.
//
// A control group costs its calls what hedging would have saved them. One percent of 100 calls a second is enough for a p99
// that is known within a quarter after ten minutes. The calls of both groups fill the budget alike. What is learned from the
// control group is not bent by hedging, whatever the requests have in common.
func WithControl(percent float64) Option {
	return func(c *config) error {
		if !(percent >= 0 && percent <= 50) {
			return fmt.Errorf("hedge: WithControl(%v): the percentage must be 0 to 50", percent)
		}
		c.control = percent / 100
		return nil
	}
}

// Control compares the calls of a method that may be hedged with those that [WithControl] leaves unhedged, over the last ten
// to eleven minutes. Latencies are those that callers saw.
type Control struct {
	// Hedgeable are the calls that may be hedged, whether they were or not, and Unhedged those of the control group.
	Hedgeable, Unhedged Group
	// SavedPerHedge is the time that all hedgeable calls together took less than as many of the control group would have,
	// divided by the hedges sent; below 0 where hedging made calls slower on average, and 0 while nothing is known.
	SavedPerHedge time.Duration
}

// Group is the latency of the calls of a group.
type Group struct {
	// Calls is how many of them ended.
	Calls int64
	// P50, P99 and P999 are their percentiles.
	P50, P99, P999 Interval
}

// Interval is an estimate and what it is certain within: 19 times in 20 the true value lies between Low and High, for calls
// that are independent of each other. Where slow calls come in bunches it is less certain than that. Low is 0, and High is 0,
// where too few calls are known to say.
type Interval struct {
	Value, Low, High time.Duration
}

// groups are the two groups of a method's calls.
type groups struct {
	share               float64
	calls               atomic.Uint64 // drawn so far
	hedgeable, unhedged *latency.Window
	hedges              *latency.Window // counts
}

const compared = 10 * time.Minute

// newGroups returns nil without a control group.
func newGroups(share float64) *groups {
	if share == 0 {
		return nil
	}
	return &groups{share: share, hedgeable: latency.New(compared), unhedged: latency.New(compared), hedges: latency.New(compared)}
}

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
	var w *latency.Window
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

// sent counts a hedge of a call.
func (g *groups) sent(in membership, now time.Time) {
	if in == hedgeableGroup {
		g.hedges.Observe(now, 0)
	}
}

// compare returns what is known of both groups; nil without a control group.
func (g *groups) compare(now time.Time) *Control {
	if g == nil {
		return nil
	}
	hedgeable, unhedged := g.hedgeable.Snapshot(now), g.unhedged.Snapshot(now)
	c := &Control{Hedgeable: newGroup(hedgeable), Unhedged: newGroup(unhedged)}
	if hedges := g.hedges.Snapshot(now).Total(); hedges > 0 && c.Unhedged.Calls > 0 && c.Hedgeable.Calls > 0 {
		saved := float64(unhedged.Mean()-hedgeable.Mean()) * float64(c.Hedgeable.Calls)
		c.SavedPerHedge = time.Duration(saved / float64(hedges))
	}
	return c
}

// tail is a quantile of the calls that were never hedged; false while too few are known.
func (g *groups) tail(now time.Time, q float64) (time.Duration, bool) {
	if g == nil {
		return 0, false
	}
	i := interval(g.unhedged.Snapshot(now), q)
	return i.Value, i.High > 0
}

func newGroup(d *latency.Distribution) Group {
	return Group{Calls: d.Total(), P50: interval(d, 0.50), P99: interval(d, 0.99), P999: interval(d, 0.999)}
}

// interval is a quantile with its interval of confidence by ranks: the share of calls below the true quantile is q within
// 1.96·√(q·(1−q)/n), as the binomial law has it.
func interval(d *latency.Distribution, q float64) Interval {
	var i Interval
	within := 1.96 * math.Sqrt(q*(1-q)/float64(max(d.Total(), 1)))
	i.Value, _ = d.Quantile(q)
	i.Low, _ = d.Quantile(q - within)
	i.High, _ = d.Quantile(q + within)
	return i
}
