package learn

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Estimate is what was concluded when the window was last looked at. It never changes.
type Estimate struct {
	knee.Plan               // what calls go by
	Median    time.Duration // of primaries
	Choice    *stats.Choice // nil without Auto, and while there are too few calls for a choice

	under *Config     // what it was made under
	since sketch.Mark // of the calls that it was made from
	until time.Time   // when it has become old
}

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

// useQuantile makes the estimate the trigger's quantile of d.
func (l *Learner) useQuantile(c *Config, now time.Time, d *sketch.Distribution) {
	if l.schedule.learned.Load()+l.takenCalls() < int64(c.WarmupCalls) {
		return // what was taken over has just been forgotten
	}
	delay, ok := d.Quantile(c.Quantile)
	if !ok {
		return // the last estimate is better than none
	}
	// The upper edge: a service that always takes 20 ms must not be hedged because 20 ms was rounded down.
	edge := sketch.UpperEdge(sketch.Bucket(delay))
	plan := knee.Plan{Delay: max(edge, c.MinDelay), Probability: 1, Hedges: c.MaxHedges}
	l.current.Store(c.following(plan, now, d, l.since))
}

const (
	// PredictFrom is how many calls a tail is predicted from at least: two are beyond the default target.
	PredictFrom = 200
	// earlyFrom is how many calls a plan is made from at least. The quantile would be too late where more calls are slow than
	// it leaves out.
	earlyFrom = 100
)

// choose makes the estimate the best plan for what was learned.
func (l *Learner) choose(c *Config, now time.Time) {
	l.outcomes.fade(now, l.schedule.learned.Load())
	d := l.lately(now)
	if d.Total() < earlyFrom {
		l.useQuantile(c, now, d)
		return
	}
	primary, hedge := d.Survival(), l.knownHedges(now).Plus(d.Counts().Times(asHedges/float64(d.Total()))).Survival()
	m := l.owner.Budget.Market(now)
	problem := c.problem(primary, hedge, m.Price, l.account.most(c, l.schedule.learned.Load(), m))
	problem.Outcomes = l.outcomes.export()
	plan, ok := knee.Find(problem)
	if !ok {
		l.useQuantile(c, now, d)
		return
	}
	e := c.following(plan, now, d, l.since)
	if d.Total() >= PredictFrom {
		e.Choice = l.explain(c, problem, plan, d)
	}
	l.current.Store(e)
}

// explain says what is expected of a plan.
func (l *Learner) explain(c *Config, problem knee.Problem, plan knee.Plan, d *sketch.Distribution) *stats.Choice {
	_, longer := d.Count()
	made := &stats.Choice{
		Delay: plan.Delay, Probability: plan.Probability, MaxHedges: plan.Hedges,
		UnhedgedTail:  knee.Tail(problem.Primary, c.Target),
		CutShort:      float64(longer) / float64(d.Total()),
		PredictedTail: problem.Percentile(plan, c.Target), PredictedLoad: plan.Load,
		Saved: plan.Saved, Kept: plan.Kept,
	}
	made.MeasuredTail, _ = d.Ended(c.Target)
	return made
}

// Config is what a scheduler's options say about learning. It is not written any more once learners use it.
type Config struct {
	Quantile      float64 // of primaries, after which calls are hedged where nothing is chosen
	Auto          bool    // delay, probability and number of hedges are chosen
	Target        float64 // the percentile that figures are about, as a quantile
	MaxHedges     int     // of one call
	BudgetPercent float64 // hedges per 100 calls
	MinDelay      time.Duration
	WarmupCalls   int // before the first estimate
	Window        time.Duration
	Pace          *Pace // shared by all learners of a scheduler; nil: no limit
}

// problem is what a plan is searched for, within a load and at a price.
func (c *Config) problem(primary, hedge *sketch.Survival, price, load float64) knee.Problem {
	return knee.Problem{Primary: primary, Hedge: hedge, Load: load, Price: price, Hedges: c.MaxHedges, MinDelay: c.MinDelay}
}

// account is the calls of a method and of its target: all so far, and lately.
type account struct {
	seenOwn, own float64
	seen, all    float64
}

// most returns the most extra attempts per call that the method may plan: all that the target can pay. The price keeps the methods of
// a target together within its budget. A method with a budget of its own plans with that.
func (a *account) most(c *Config, calls int64, m budget.Market) float64 {
	own, begun := m.Usable*c.BudgetPercent/100, m.Calls-a.seen
	keep := math.Exp(-begun * m.PerCall / max(m.Capacity, 1))
	a.own, a.all = keep*a.own+float64(calls)-a.seenOwn, keep*a.all+begun
	a.seenOwn, a.seen = float64(calls), m.Calls
	if a.own < 1 || math.Abs(m.PerCall-c.BudgetPercent/100) > 1e-9 {
		return own
	}
	return own * max(a.all/a.own, 1)
}
