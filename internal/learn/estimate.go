package learn

import (
	"math"
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
	// PredictFrom is how many calls a choice or a prediction is made from at least: two beyond the default target.
	PredictFrom = 200
	// earlyFrom is how many calls a plan is made from at least. With fewer than PredictFrom it is one for a nearer percentile,
	// which two of them are beyond. The fallback would be too late where more calls are slow than it leaves out.
	earlyFrom = 100
	// learning is how long a method is watched before it is concluded that there is little to gain: calls that last long are
	// only known when they end.
	learning = 5 * time.Second
)

// choose makes the estimate the best plan for what was learned, and judges whether hedging pays. Of few calls it does not judge.
func (l *Learner) choose(c *Config, now time.Time, capacity float64) {
	l.rests.fade(now)
	d, newest := l.lately(now)
	calls := d.Total()
	if e := l.current.Load(); calls < PredictFrom && e != nil && e.Trickle != nil {
		return // too few to choose from are also too few to tell that hedges win again
	}
	if calls < earlyFrom {
		l.useQuantile(c, now, d)
		return
	}
	primary, hedges := d.Survival(), l.knownHedges(now)
	hedge := sketch.Mix(primary, asHedges, hedges.Survival(), float64(hedges.Total()))
	problem := c.problem(d, primary, hedge, planned(c.BudgetPercent, capacity))
	problem.Outcomes = l.rests.export()
	if calls < PredictFrom {
		problem.Target = min(c.Target, 1-2/float64(calls))
	}
	plan, ok := knee.Find(problem)
	if !ok {
		l.useQuantile(c, now, d)
		return
	}
	e := c.following(plan, now, d, l.since)
	if calls >= PredictFrom {
		l.judge(c, e, problem, plan, d, newest, now)
	}
	l.current.Store(e)
}

// judge says in an estimate that follows a plan what is expected of it, and steps it down if hedging does not pay.
func (l *Learner) judge(c *Config, e *Estimate, problem knee.Problem, plan knee.Plan, d, newest *sketch.Distribution, now time.Time) {
	j, primary := &l.judgement, problem.Primary
	before := stats.NotSteppedDown
	if last := l.current.Load(); last != nil && last.Choice != nil {
		before = last.Choice.SteppedDown
		j.evidence.add(l.won.Swap(0), l.lost.Swap(0), expectedWins(primary, newest, last.Delay))
	}
	if before == stats.HedgesLose && j.evidence.ratio(before) >= winning {
		l.rests.forget() // what it was learned from is over
	}
	gain := c.gain(primary, plan)
	if now.Sub(l.first) < learning {
		gain = math.Inf(1)
	}
	_, longer := d.Count()
	made := &stats.Choice{
		UnhedgedTail: knee.Tail(primary, c.Target), CutShort: float64(longer) / float64(d.Total()),
		PredictedTail: plan.Tail, PredictedLoad: plan.Load, PredictedWins: plan.WinShare,
		RecentlyHedged: int(j.evidence.hedged), MeasuredWins: j.evidence.won / max(j.evidence.hedged, 1),
		SteppedDown: j.step(before, gain, j.wins(c, before, problem)),
	}
	made.MeasuredTail, _ = d.Ended(c.Target)
	switch made.SteppedDown {
	case stats.LittleToGain:
		e.Plan = c.leastGain(primary, plan)
	case stats.HedgesLose:
		if j.trickle == nil {
			j.trickle = budget.New(tricklePercent)
		}
		e.Trickle = j.trickle
	}
	made.Delay, made.Probability, made.MaxHedges = e.Delay, e.Probability, e.Hedges
	e.Choice = made
	if made.SteppedDown != j.noted {
		j.noted = made.SteppedDown
		l.changes = append(l.changes, made)
	}
}

// expectedWins is the share of the calls hedged lately that a hedge was to answer. Slow calls come in bunches, as
// when a backend stalls, and calls that are just beyond the delay at other times no hedge can answer earlier; so it goes by
// the calls of the same time where there are enough.
func expectedWins(primary *sketch.Survival, newest *sketch.Distribution, delay time.Duration) float64 {
	if newest.Total() >= PredictFrom {
		primary = newest.Survival()
	}
	return knee.WinShare(primary, delay)
}

// Config is what a scheduler's options say about learning. It is not written any more once learners use it.
type Config struct {
	Quantile      float64 // of primaries, after which calls are hedged where nothing is chosen
	Auto          bool    // delay, probability and number of hedges are chosen
	Target        float64 // the percentile that a choice makes small, as a quantile
	MaxHedges     int     // of one call
	BudgetPercent float64 // hedges per 100 calls
	MinDelay      time.Duration
	WarmupCalls   int // before the first estimate
	Window        time.Duration
	Pace          *Pace // shared by all learners of a scheduler; nil: no limit
}

func (c *Config) problem(d *sketch.Distribution, primary, hedge *sketch.Survival, load float64) knee.Problem {
	return knee.Problem{
		Primary: primary, Hedge: hedge, Calls: float64(d.Total()),
		Target: c.Target, Load: load, Hedges: c.MaxHedges, MinDelay: c.MinDelay,
	}
}

// planned is the load that a budget in percent is planned with, for a bucket of the given capacity in hedges. With all of the
// budget the bucket runs dry by chance, and a call that finds it so is slower for it: the smaller the bucket the more often.
func planned(budgetPercent, capacity float64) float64 {
	return budgetPercent / 100 * min(capacity/(capacity+1), 0.95)
}

// gain is the share of the unhedged tail that a plan saves, or, where that is a lot, of the tail ten times as far out.
func (c *Config) gain(primary *sketch.Survival, plan knee.Plan) float64 {
	gain := 1 - float64(plan.Tail)/float64(knee.Tail(primary, c.Target))
	if far := 1 - float64(plan.FarTail)/float64(knee.FarTail(primary, c.Target)); far >= worthwhileFar {
		gain = max(gain, far)
	}
	return gain
}

// leastGain is the plan in place of one that gains little. Only what is slower than nearly all calls that were seen is hedged:
// hardly any call now, and each one when a backend stalls.
func (c *Config) leastGain(primary *sketch.Survival, plan knee.Plan) knee.Plan {
	return knee.Plan{Delay: max(knee.Tail(primary, 1-tricklePercent/100), plan.Delay), Probability: 1, Hedges: c.MaxHedges}
}
