package hedge

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
)

// Auto chooses delay, probability and number of hedges so that calls get the best tail that the budget can buy, and
// stops hedging, but for fewer than one call in a hundred, where that does not pay. There is nothing to tune;
// [WithTargetPercentile] says which percentile is meant by the tail.
//
// Once a second, at the default [WithWindow], a choice is made for each method, from what its primaries and its hedges took lately, as
//
//	S(t) = S_X(t) · Π_k (1 − q·F_Y(t − k·d))
//
// predicts the latencies of calls whose hedge k is sent at the age k·d with the probability q: S_X is the share of primaries
// that take longer than t, F_Y that of hedges that take less. This goes back to Kaler, He and Elnikety, "Optimal Reissue
// Policies for Reducing Tail Latency" (SPAA 2017). The probability is the greatest for which all hedges together cost 95% of
// the budget, less where its bucket holds few tokens. The delay is the one with the least target percentile; among those
// within 3% of it, the one with the least percentile ten times as far out (p99.9 for p99), and then the one with the least load.
//
// Hedging steps down to six hedges per 1,000 calls when hedges win much more seldom than they would if they were as fast as
// primaries: requests that are slow on every backend, a saturated backend, a single one, an outage. When the best choice
// promises to improve the target percentile by less than 5%, only what is slower than nearly all calls that were seen is
// hedged. It steps up when either turns. When latencies change at once, what was learned before is forgotten.
// [TargetStats] says what is in force and why.
//
// The formula takes a hedge for independent of its primary, which those cases show it not to be; and it needs a few
// hundred calls within [WithWindow]. Methods that have fewer are hedged at their 90th percentile.
func Auto() Trigger { return Trigger{kind: autoTrigger} }

// WithTargetPercentile sets the percentile of calls that [Auto] makes as small as it can, as a quantile: 0.5 ≤ q ≤
// 0.999. The default is 0.99.
//
// With another trigger it has no effect but on what [WithDryRun] forecasts.
func WithTargetPercentile(q float64) Option {
	return func(c *config) error {
		if !(q >= 0.5 && q <= 0.999) {
			return fmt.Errorf("hedge: WithTargetPercentile(%v): the quantile must be 0.5 to 0.999", q)
		}
		c.target = q
		return nil
	}
}

const (
	// autoFrom is how many calls a choice is made from at least: two beyond the default target.
	autoFrom = 200
	// mostPlanned is the greatest share of the budget that is planned with: see planned.
	mostPlanned = 0.95
	// asHedges is for how many hedges what is known of primaries counts, as long as few hedges were seen.
	asHedges = 300
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
	worthwhile    = 0.05
	worthwhileFar = 0.25 // of the percentile ten times as far out
	obvious       = 0.25
	persistent    = 5
	losing        = 0.4
	winning       = 0.55
)

// choice is what was chosen and what from.
type choice struct {
	plan     knee.Plan
	unhedged time.Duration // target percentile without hedging
	measured time.Duration // target percentile of calls as they ended
	hedged   int           // calls that were, lately
	wins     float64       // share of them that a hedge answered
	down     reasonDown
}

// reasonDown is why hedging has stepped down.
type reasonDown uint8

const (
	notDown reasonDown = iota
	littleToGain
	hedgesLose
)

// choose has calls hedged as is best for what was learned.
func (l *learner) choose(c *config, now time.Time, burst float64) {
	d, newest := l.lately(now)
	if d.Total() < autoFrom {
		// Too few to choose from are also too few to tell that hedges win again.
		if e := l.current.Load(); e == nil || e.trickle == nil {
			l.take(c, d)
		}
		return
	}
	primary := d.Survival()
	plan, ok := knee.Find(c.problem(d, primary, l.hedges.law(now, primary), planned(c.budgetPercent, burst)))
	if !ok {
		l.take(c, d)
		return
	}
	before := notDown
	if e := l.current.Load(); e != nil && e.choice != nil {
		before = e.choice.down
		hedged, won := l.hedges.count()
		l.evidence.add(hedged, won, expectedWins(primary, newest, e.delay))
	}
	unhedged := knee.Tail(primary, c.target)
	gain := 1 - float64(plan.Tail)/float64(unhedged)
	if far := 1 - float64(plan.FarTail)/float64(knee.FarTail(primary, c.target)); far >= worthwhileFar {
		gain = max(gain, far)
	}
	if now.Sub(l.first) < learning {
		gain = math.Inf(1)
	}
	made := &choice{plan: plan, unhedged: unhedged, hedged: int(l.evidence.hedged), wins: l.evidence.share(), down: l.judge(before, gain, l.evidence.ratio(before))}
	made.measured, _ = d.Ended(c.target)

	median, _ := d.Quantile(0.50)
	e := &estimate{delay: plan.Delay, probability: plan.Probability, hedges: plan.Hedges, median: median, since: l.since, choice: made}
	switch made.down {
	case littleToGain:
		// Only what is slower than nearly all calls that were seen: hardly any now, and each one when a backend stalls.
		e.delay = max(knee.Tail(primary, 1-tricklePercent/100), e.delay)
		e.probability, e.hedges = 1, c.maxHedges
	case hedgesLose:
		if l.trickle == nil {
			l.trickle = budget.New(tricklePercent)
		}
		e.trickle = l.trickle
	}
	l.current.Store(e)
}

// planned is the load that a budget in percent is planned with, for a bucket of the given size. With all of the budget the
// bucket runs dry by chance, and a call that finds it so is slower for it: the smaller the bucket the more often.
func planned(budgetPercent, burst float64) float64 {
	return budgetPercent / 100 * min(burst/(burst+1), mostPlanned)
}

// problem is what a choice of at most the given load is made from.
func (c *config) problem(d *sketch.Distribution, primary, hedge *sketch.Survival, load float64) knee.Problem {
	return knee.Problem{
		Primary:  primary,
		Hedge:    hedge,
		Calls:    float64(d.Total()),
		Target:   c.target,
		Load:     load,
		Hedges:   c.maxHedges,
		MinDelay: c.minDelay,
	}
}

// expectedWins is the share of the calls that were hedged lately that a hedge was to answer. Slow calls come in bunches, as
// when a backend stalls, and those that are just beyond the delay at other times no hedge can answer earlier; so it goes by
// the calls of the same time where there are enough.
func expectedWins(primary *sketch.Survival, newest *sketch.Distribution, delay time.Duration) float64 {
	if newest.Total() >= autoFrom {
		primary = newest.Survival()
	}
	return knee.WinShare(primary, delay)
}

// judge says whether hedging is to be stepped down, and why, when it was before for the reason given.
func (l *learner) judge(before reasonDown, gain, wins float64) reasonDown {
	now := notDown
	switch {
	case wins < losing, before == hedgesLose && wins < winning:
		now = hedgesLose
	case gain < worthwhile:
		now = littleToGain
	}
	if now != notDown || before == notDown {
		l.promising = 0
		return now
	}
	if l.promising++; gain < obvious && l.promising < persistent {
		return before
	}
	return notDown
}

// evidence is how hedged calls have fared against what was predicted. It counts the last hundred of them, however
// long ago they were: a method that has stepped down makes few.
type evidence struct {
	hedged, won, expected float64
}

const (
	remembered  = 100 // hedged calls
	assumedWins = 5   // further ones that are taken to have been predicted
)

// add takes decided calls into account, of which the share given was expected to be answered by a hedge.
func (e *evidence) add(hedged, won int64, share float64) {
	e.hedged += float64(hedged)
	e.won += float64(won)
	e.expected += float64(hedged) * share
	if e.hedged > remembered {
		fade := remembered / e.hedged
		e.hedged, e.won, e.expected = remembered, e.won*fade, e.expected*fade
	}
}

// ratio is how often hedges won, relative to what was predicted. Without evidence it speaks for leaving things as they
// are.
func (e *evidence) ratio(down reasonDown) float64 {
	won := e.won + assumedWins
	if down == hedgesLose {
		won = e.won + losing*assumedWins
	}
	return won / (e.expected + assumedWins)
}

// share is the part of hedged calls that a hedge answered; 0 without any.
func (e *evidence) share() float64 {
	if e.hedged == 0 {
		return 0
	}
	return e.won / e.hedged
}

// outcomes is what is known of a method's hedges.
type outcomes struct {
	memory    *sketch.Meter                 // that the window is part of; nil: none
	window    atomic.Pointer[sketch.Window] // what they took from when they were sent; nil until there is one
	won, lost atomic.Int64                  // hedged calls since the last look
}

// record says that a hedge answered at now after d, or was cancelled then unanswered.
func (o *outcomes) record(c *config, now time.Time, d time.Duration, answered bool) {
	w := o.window.Load()
	if w == nil {
		o.window.CompareAndSwap(nil, sketch.NewIn(o.memory, c.window))
		if w = o.window.Load(); w == nil {
			return // just forgotten
		}
	}
	if answered {
		w.Observe(now, d)
	} else {
		w.AtLeast(now, d)
	}
}

// forget drops what is known.
func (o *outcomes) forget() {
	if w := o.window.Swap(nil); w != nil {
		w.Release()
	}
	o.count()
}

// decided takes a hedged call into account that has ended, and whether a hedge answered it.
func (o *outcomes) decided(won bool) {
	if won {
		o.won.Add(1)
	} else {
		o.lost.Add(1)
	}
}

// count returns how many hedged calls ended since it was last asked, and how many of them a hedge answered.
func (o *outcomes) count() (hedged, won int64) {
	won = o.won.Swap(0)
	return won + o.lost.Swap(0), won
}

// law is the survival function of hedges. What is known of primaries stands in as long as few were seen.
func (o *outcomes) law(now time.Time, primary *sketch.Survival) *sketch.Survival {
	w := o.window.Load()
	if w == nil {
		return primary
	}
	d := w.Snapshot(now)
	return sketch.Mix(primary, asHedges, d.Survival(), float64(d.Total()))
}

// chance decides with a given probability. It runs through the multiples of the golden ratio, modulo 1, which fill the
// interval from 0 to 1 more evenly than chance does: what is sent stays close to its share at any time.
type chance struct{ at atomic.Uint64 }

func (c *chance) take(probability float64) bool {
	const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ / φ
	return float64(c.at.Add(golden)>>11)*(1.0/(1<<53)) < probability
}
