package learn

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

const (
	// autoFrom is how many calls a choice is made from at least: two beyond the default target.
	autoFrom = 200
	// earlyFrom is how many calls a plan is made from at least. With fewer than autoFrom it is one for a nearer percentile, which
	// two of them are beyond. The fallback would be too late where more calls are slow than it leaves out.
	earlyFrom = 100
	// mostPlanned is the greatest share of the budget that is planned with: see planned.
	mostPlanned = 0.95
	// learning is how long a method is watched before it is concluded that there is little to gain: calls that last long are
	// only known when they end.
	learning = 5 * time.Second
	// tricklePercent is the budget that is left when hedging has stepped down.
	tricklePercent = 0.6
)

// Hedging steps down when the tail would improve by less than worthwhile, or when the share of hedges that win, relative
// to what is predicted, falls below losing. It steps up again when that share is above winning and the improvement is
// obvious, or worthwhile so many times in a row that it is not chance.
const (
	worthwhile       = 0.05
	worthwhileLosing = 0.10 // where hedges win seldom: what is predicted of few is too good on average
	worthwhileAgain  = 0.15 // the same, when it has stepped down for that
	worthwhileFar    = 0.25 // of the percentile ten times as far out
	obvious          = 0.25
	persistent       = 5
	hopeless         = 0.15 // nothing is gained by hedges that do not win, whatever it looks like
	losing           = 0.4
	winning          = 0.55
)

// choose has calls hedged as is best for what was learned.
func (l *Learner) choose(c *Config, now time.Time, capacity float64) {
	l.rests.add(now, l.mailbox.empty())
	d, newest := l.lately(now)
	if d.Total() < autoFrom {
		// Too few to choose from are also too few to tell that hedges win again.
		if e := l.current.Load(); e == nil || e.Trickle == nil {
			l.chooseEarly(c, now, d, capacity)
		}
		return
	}
	primary := d.Survival()
	problem := c.problem(d, primary, l.hedgeDistribution(now, primary), planned(c.BudgetPercent, capacity))
	problem.Outcomes = l.rests.outcomes()
	plan, ok := knee.Find(problem)
	if !ok {
		l.take(c, now, d)
		return
	}
	before := stats.NotSteppedDown
	if e := l.current.Load(); e != nil && e.Choice != nil {
		before = e.Choice.SteppedDown
		hedged, won := l.hedges.count()
		l.evidence.add(hedged, won, expectedWins(primary, newest, e.Delay))
	}
	gain := c.gain(primary, plan)
	wins := l.evidence.ratio(before)
	if now.Sub(l.first) < learning {
		gain = math.Inf(1)
	}
	switch {
	case before == stats.HedgesLose && wins >= winning:
		l.rests.forget() // what it was learned from is over
	case before != stats.HedgesLose && l.evidence.hedged < remembered:
		wins = max(wins, losing) // too few to tell
	case wins < losing || before == stats.HedgesLose:
		problem.Skeptical = true
		if shown, ok := knee.Find(problem); ok {
			wins = l.evidence.ratio(before)
			enough := worthwhileLosing
			if before == stats.HedgesLose {
				enough = worthwhileAgain
			}
			if wins > hopeless && c.gain(primary, shown) >= enough {
				wins = 1 // few hedges win, but these are worth it
			}
		}
	}
	unhedged := knee.Tail(primary, c.Target)
	_, longer := d.Count()
	made := &stats.Choice{
		UnhedgedTail: unhedged, UnhedgedTailFrom: stats.FromPrimaries, CutShort: float64(longer) / float64(d.Total()),
		PredictedTail: plan.Tail, PredictedLoad: plan.Load, PredictedWins: plan.WinShare,
		RecentlyHedged: int(l.evidence.hedged), MeasuredWins: l.evidence.share(), SteppedDown: l.judge(before, gain, wins),
	}
	made.MeasuredTail, _ = d.Ended(c.Target)

	e := l.following(c, now, d, plan)
	e.Choice = made
	switch made.SteppedDown {
	case stats.LittleToGain:
		left := c.leastGain(primary, plan)
		e.Delay, e.Probability, e.Hedges = left.Delay, left.Probability, left.Hedges
	case stats.HedgesLose:
		if l.trickle == nil {
			l.trickle = budget.New(tricklePercent)
		}
		e.Trickle = l.trickle
	}
	made.Delay, made.Probability, made.MaxHedges = e.Delay, e.Probability, e.Hedges
	l.current.Store(e)
	l.noteStep(made)
}

// chooseEarly has calls hedged as is best for the percentile that so few calls say something about. It does not judge whether
// hedging pays.
func (l *Learner) chooseEarly(c *Config, now time.Time, d *sketch.Distribution, capacity float64) {
	calls := float64(d.Total())
	if calls < earlyFrom {
		l.take(c, now, d)
		return
	}
	primary := d.Survival()
	problem := c.problem(d, primary, l.hedgeDistribution(now, primary), planned(c.BudgetPercent, capacity))
	problem.Target = min(c.Target, 1-2/calls)
	problem.Outcomes = l.rests.outcomes()
	plan, ok := knee.Find(problem)
	if !ok {
		l.take(c, now, d)
		return
	}
	l.current.Store(l.following(c, now, d, plan))
}

// following is the estimate that follows a plan.
func (l *Learner) following(c *Config, now time.Time, d *sketch.Distribution, plan knee.Plan) *Estimate {
	median, _ := d.Quantile(0.50)
	return &Estimate{
		Delay: plan.Delay, Probability: plan.Probability, Hedges: plan.Hedges, Median: median,
		under: c, since: l.since, until: now.Add(c.Window / refreshes),
	}
}

// leastGain is the plan in place of one that gains little. Only what is slower than nearly all calls that were seen is hedged:
// hardly any call now, and each one when a backend stalls.
func (c *Config) leastGain(primary *sketch.Survival, plan knee.Plan) knee.Plan {
	return knee.Plan{Delay: max(knee.Tail(primary, 1-tricklePercent/100), plan.Delay), Probability: 1, Hedges: c.MaxHedges}
}

// gain is the share of the unhedged tail that a plan saves, of the target percentile or, where that is a lot, of the one ten
// times as far out.
func (c *Config) gain(primary *sketch.Survival, plan knee.Plan) float64 {
	gain := 1 - float64(plan.Tail)/float64(knee.Tail(primary, c.Target))
	if far := 1 - float64(plan.FarTail)/float64(knee.FarTail(primary, c.Target)); far >= worthwhileFar {
		gain = max(gain, far)
	}
	return gain
}

// planned is the load that a budget in percent is planned with, for a bucket of the given capacity in hedges. With all of the budget the
// bucket runs dry by chance, and a call that finds it so is slower for it: the smaller the bucket the more often.
func planned(budgetPercent, capacity float64) float64 {
	return budgetPercent / 100 * min(capacity/(capacity+1), mostPlanned)
}

// problem is what a choice of at most the given load is made from.
func (c *Config) problem(d *sketch.Distribution, primary, hedge *sketch.Survival, load float64) knee.Problem {
	return knee.Problem{
		Primary:  primary,
		Hedge:    hedge,
		Calls:    float64(d.Total()),
		Target:   c.Target,
		Load:     load,
		Hedges:   c.MaxHedges,
		MinDelay: c.MinDelay,
	}
}

// expectedWins is the share of the calls hedged lately that a hedge was to answer. Slow calls come in bunches, as
// when a backend stalls, and calls that are just beyond the delay at other times no hedge can answer earlier; so it goes by
// the calls of the same time where there are enough.
func expectedWins(primary *sketch.Survival, newest *sketch.Distribution, delay time.Duration) float64 {
	if newest.Total() >= autoFrom {
		primary = newest.Survival()
	}
	return knee.WinShare(primary, delay)
}

// judge says whether hedging is to be stepped down, and why, when it was before for the reason given.
func (l *Learner) judge(before stats.StepDown, gain, wins float64) stats.StepDown {
	now := stats.NotSteppedDown
	switch {
	case wins < losing, before == stats.HedgesLose && wins < winning:
		now = stats.HedgesLose
	case gain < worthwhile:
		now = stats.LittleToGain
	}
	if now != stats.NotSteppedDown || before == stats.NotSteppedDown {
		l.promising = 0
		return now
	}
	if l.promising++; gain < obvious && l.promising < persistent {
		return before
	}
	return stats.NotSteppedDown
}
