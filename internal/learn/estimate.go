package learn

import (
	"time"

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
func (l *Learner) choose(c *Config, now time.Time, capacity float64) {
	l.outcomes.fade(now)
	d := l.lately(now)
	if d.Total() < earlyFrom {
		l.useQuantile(c, now, d)
		return
	}
	primary, hedge := d.Survival(), l.knownHedges(now).Plus(d.Counts().Times(asHedges/float64(d.Total()))).Survival()
	problem := c.problem(primary, hedge, capacity)
	problem.Outcomes = l.outcomes.export()
	plan, ok := knee.Find(problem)
	if !ok {
		l.useQuantile(c, now, d)
		return
	}
	late := max(knee.Tail(primary, 1-few*problem.Load), c.MinDelay)
	if seldom := problem.Predict(knee.Plan{Delay: late, Probability: 1, Hedges: plan.Hedges}); l.trial.fewNow(l.window, now, plan.Worth()-seldom.Worth()) {
		plan = seldom
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

// problem is what a plan is searched for, with a bucket of the given capacity in hedges. With all of the budget the bucket
// would run dry by chance, and a call that finds it so is slower for it: the smaller the bucket the more often.
func (c *Config) problem(primary, hedge *sketch.Survival, capacity float64) knee.Problem {
	load := c.BudgetPercent / 100 * min(capacity/(capacity+1), 0.95)
	return knee.Problem{Primary: primary, Hedge: hedge, Load: load, Hedges: c.MaxHedges, MinDelay: c.MinDelay}
}
