package trigger

import (
	"cmp"
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Estimate is the result of one evaluation of the window. It is immutable.
type Estimate struct {
	HedgePlan               // in force for calls
	Median    time.Duration // of primaries
	Choice    *stats.Choice // nil without Auto, without PredictFrom calls, and without a plan

	due      float64 // share of primaries beyond Delay
	withhold float64 // share of due hedges that are withheld, beside those that Probability excludes
	vain     float64 // share of due hedges that are late

	since sketch.Mark // start of the calls it was computed from
	until time.Time   // when it expires
}

// follow returns an estimate of the calls in d that has no choice yet.
func (l *Learner) follow(plan HedgePlan, c *Config, now time.Time, d *sketch.Distribution) *Estimate {
	median, _ := d.Quantile(0.50)
	return &Estimate{HedgePlan: plan, Median: median, since: l.since, until: now.Add(c.interval())}
}

// useQuantile sets the estimate to the trigger's quantile of d, or to most if that is less.
func (l *Learner) useQuantile(c *Config, now time.Time, d *sketch.Distribution, most time.Duration) {
	delay, ok := d.Quantile(c.Quantile)
	if !ok {
		return // keep the last estimate, if any
	}
	// The upper edge: rounding down would hedge every call of a service with a constant latency.
	edge := sketch.UpperEdge(sketch.Bucket(min(delay, most)))
	plan := HedgePlan{Delay: min(max(edge, c.MinDelay), cmp.Or(c.Latest, Never)), Probability: 1, Hedges: c.MaxHedges}
	l.current.Store(l.follow(plan, c, now, d))
}

const (
	reported    = 0.99 // the tail of choices and predictions, as a quantile
	PredictFrom = 200  // minimum number of calls for a prediction of it: two lie beyond p99
)

// choose sets the estimate to the best plan for the learned latencies.
func (l *Learner) choose(c *Config, now time.Time) {
	d := l.sinceChange(now)
	undrawn, late := l.undrawn.since(now.Add(-keptUndrawn*c.Window)), l.late.since(now.Add(-c.Window))
	primary, hedge := d.Survival(), l.hedgeLatency(now, d)
	if hedge == nil {
		median, _ := d.Quantile(0.50)
		l.useQuantile(c, now, d, 2*median)
		return
	}
	m := l.owner.Budget.Market(now)
	problem := Problem{
		Primary: primary, Hedge: hedge, Measured: l.measured.recent(now), Price: m.Price,
		Hedges: c.MaxHedges, MinDelay: c.MinDelay, Latest: c.Latest,
	}
	l.account.fill(&problem, c, l.schedule.learned.Load(), l.ended.Load(), m)
	plan, ok := Find(problem)
	if !ok {
		l.useQuantile(c, now, d, Never)
		return
	}
	e := l.follow(plan, c, now, d)
	e.due = d.Beyond(plan.Delay)
	e.withhold = l.withholds(c, now, e.due)
	if e.due > 1-reported { // hedges change the tail
		e.vain = problem.vain(plan, d, append(late, undrawn...))
	}
	if _, longer := d.Count(); d.Total() >= PredictFrom {
		e.Choice = &stats.Choice{
			Delay: plan.Delay, Probability: plan.Probability, MaxHedges: plan.Hedges,
			UnhedgedTail:  l.unhedged(now, d).percentile(reported),
			CutShort:      float64(longer) / float64(d.Total()),
			PredictedTail: problem.Percentile(plan, reported), PredictedLoad: min(plan.Load, problem.Load),
			Saved: plan.Saved,
		}
	}
	l.current.Store(e)
}

// Config holds a scheduler's options for learning. It must not be written once learners use it.
type Config struct {
	Quantile      float64 // of primary latency: the delay where no choice is made
	Auto          bool    // choose delay, probability and number of hedges
	MaxHedges     int     // of one call
	BudgetPercent float64 // hedges per 100 calls
	MinDelay      time.Duration
	Latest        time.Duration // hedge k is due at k times this at the latest; 0: no bound
	WarmupCalls   int           // before the first estimate
	Window        time.Duration
}

// account counts the calls and hedges of a method and of its target: in total at the last choice
// (seen), and recently, with exponential decay.
type account struct {
	seenOwn, own, seenSent, sent float64
	seen, all, seenSpent, spent  float64
}

// fill sets Load, the hedges that the target can pay for, and Others, the hedges of its other methods,
// both per call of the method, and Tokens. The price keeps all methods of a target together within its
// budget. A method with a budget of its own plans with that budget alone.
func (a *account) fill(p *Problem, c *Config, calls, sent int64, m budget.Market) {
	begun := m.Calls - a.seen
	keep := math.Exp(-begun * m.PerCall / max(m.Capacity, 1))
	a.own, a.sent = keep*a.own+float64(calls)-a.seenOwn, keep*a.sent+float64(sent)-a.seenSent
	a.all, a.spent = keep*a.all+begun, keep*a.spent+m.Spent-a.seenSpent
	a.seenOwn, a.seenSent, a.seen, a.seenSpent = float64(calls), float64(sent), m.Calls, m.Spent
	p.Load, p.Tokens = c.BudgetPercent/100, m.Tokens
	if a.own < 1 || math.Abs(m.PerCall-c.BudgetPercent/100) > 1e-9 {
		return
	}
	p.Load *= max(a.all/a.own, 1)
	p.Others = max(a.spent-a.sent, 0) / a.own
}
