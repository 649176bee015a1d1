package trigger

import (
	"math"
	"time"
)

// The variables that take parts out.
var (
	DeadlineFactor, Assumed, KeptCalls, KeptHedges = &deadlineFactor, &assumed, &keptCalls, &keptHedges
	Matters, StaleForNext                          = &matters, &staleForNext
)

// Choose makes a choice on the calling goroutine. No other goroutine may be computing.
func (l *Learner) Choose(now time.Time) { l.choose(l.config.Load(), now) }

// Run replaces the function that runs choices.
func (l *Learner) Run(run func(choose func())) { l.owner.Run = run }

// Take and Took export take and took.
func (p *Pace) Take(at time.Duration) bool { return p.take(int64(at)) }
func (p *Pace) Took(at, d time.Duration)   { p.took(int64(at), d) }

// HasChanged reports whether latencies have changed.
func (l *Learner) HasChanged() bool { return l.since != math.MinInt64 }

// Kinds returns the number of kinds of measured calls.
func (l *Learner) Kinds() int { return len(l.measured.of) }

// Predict returns a plan with the predictions for its delays, probability and number of hedges.
func (p Problem) Predict(plan HedgePlan) HedgePlan {
	s := p.search()
	option := func(delay time.Duration) option { return s.option(0, delay, plan.Hedges) }
	return s.mix(option(plan.Delay), option(s.Latest), plan.Probability).plan
}
