package trigger

import "time"

// Choose makes a choice on the calling goroutine. No other goroutine may be computing.
func (l *Learner) Choose(now time.Time) { l.choose(l.config.Load(), now) }

// Run replaces the function that runs choices.
func (l *Learner) Run(run func(choose func())) { l.run = run }

// Take and Took export take and took.
func (p *Pace) Take(at time.Duration) bool { return p.take(int64(at)) }
func (p *Pace) Took(at, d time.Duration)   { p.took(int64(at), d) }

// Changed returns when latencies last changed, or zero.
func (l *Learner) Changed() time.Time { return l.changed }

// Kinds returns the number of kinds of measured calls.
func (l *Learner) Kinds() int { return len(l.measured.of) }

// Predict returns a plan with the predictions for its delay, probability and number of hedges.
func (p Problem) Predict(plan HedgePlan) HedgePlan {
	s := p.search()
	plan.Kept, plan.Load = s.kept(plan.Delay), s.load(plan)
	plan, _ = s.weigh(plan)
	return plan
}
