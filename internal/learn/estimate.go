package learn

import (
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Estimate is what was concluded when the window was last looked at. It never changes.
type Estimate struct {
	knee.Plan                // what calls go by
	Trickle   *budget.Bucket // what pays when hedging has stepped down; nil otherwise
	Median    time.Duration  // of primaries
	Choice    *stats.Choice  // nil without Auto, and while there are too few calls for a choice

	under *Config     // what it was made under
	since sketch.Mark // of the calls that it was made from
	until time.Time   // when it has become old
}

// MadeUnder reports whether the estimate was made under a configuration.
func (e *Estimate) MadeUnder(c *Config) bool { return *e.under == *c }

// Stats returns the choice that is in force; zero without one. e may be nil.
func (e *Estimate) Stats() stats.Choice {
	if e == nil || e.Choice == nil {
		return stats.Choice{}
	}
	return *e.Choice
}

func (c *Config) following(plan knee.Plan, now time.Time, d *sketch.Distribution, since sketch.Mark) *Estimate {
	median, _ := d.Quantile(0.50)
	return &Estimate{Plan: plan, Median: median, under: c, since: since, until: now.Add(c.interval())}
}

// take makes the estimate the trigger's quantile of d.
func (l *Learner) take(c *Config, now time.Time, d *sketch.Distribution) {
	if l.schedule.learned.Load()+l.takenCalls() < int64(c.WarmupCalls) {
		return // what was taken over has just been forgotten
	}
	delay, ok := d.Quantile(c.Quantile)
	if !ok {
		return // the last estimate is better than none
	}
	// The upper edge of the quantile's bucket: a service that always takes 20 ms must not be hedged because 20 ms
	// was rounded down.
	edge := sketch.UpperEdge(sketch.Bucket(delay))
	plan := knee.Plan{Delay: max(edge, c.MinDelay), Probability: 1, Hedges: c.MaxHedges}
	l.current.Store(c.following(plan, now, d, l.since))
}
