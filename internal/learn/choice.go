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
		l.take(c, now, d)
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
		l.take(c, now, d)
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
		hedged, won := l.hedges.count()
		j.evidence.add(hedged, won, expectedWins(primary, newest, last.Delay))
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
		UnhedgedTail: knee.Tail(primary, c.Target), UnhedgedTailFrom: stats.FromPrimaries, CutShort: float64(longer) / float64(d.Total()),
		PredictedTail: plan.Tail, PredictedLoad: plan.Load, PredictedWins: plan.WinShare,
		RecentlyHedged: int(j.evidence.hedged), MeasuredWins: j.evidence.won / max(j.evidence.hedged, 1),
		SteppedDown: j.step(before, gain, j.wins(c, before, problem), l.place.NothingToGain != nil && l.place.NothingToGain()),
	}
	made.MeasuredTail, _ = d.Ended(c.Target)
	switch made.SteppedDown {
	case stats.LittleToGain, stats.NothingToGain:
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
