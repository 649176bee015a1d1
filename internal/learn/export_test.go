package learn

import "time"

// Choose makes a choice on this goroutine. No other may.
func (l *Learner) Choose(now time.Time) { l.choose(l.config.Load(), now) }

// Run has choices be made by run.
func (l *Learner) Run(run func(choose func())) { l.run = run }

// Take and Took are what learners do with a pace.
func (p *Pace) Take(at time.Duration) bool { return p.take(int64(at)) }
func (p *Pace) Took(d time.Duration)       { p.took(d) }

// Outcomes is how many outcomes of hedged calls are kept apart.
func (l *Learner) Outcomes() int { return len(l.outcomes.of) }
