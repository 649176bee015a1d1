// Package trigger learns the latency of the calls of one method and derives an [Estimate] from it:
// when to hedge. Each call reads the estimate with one atomic load.
//
// The estimate is recomputed about once a second, and more often while few calls are known. With
// [Config.Auto] it is the [HedgePlan] of the greatest worth: gain less the price of its load.
// Otherwise it is a quantile. docs/trigger.md has the model, its formulas and sources, and its
// known errors.
package trigger

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/sketch"
)

// Learner learns when a call of one method is unusually slow. After Start, its methods are safe for
// concurrent use.
type Learner struct {
	config  atomic.Pointer[Config]
	owner   Owner
	current atomic.Pointer[Estimate] // nil until learned
	draws   sketch.Draws

	schedule schedule
	window   *sketch.Window                // latency of primaries
	hedges   atomic.Pointer[sketch.Window] // latency of hedges to the method, from when they were sent
	away     atomic.Pointer[Learner]       // the method at the hedges' destination; nil: where primaries go
	measured measured
	undrawn  undrawn                  // not drawn, or withheld to learn
	late     undrawn                  // because hedges are in vain
	ended    atomic.Int64             // hedges
	received atomic.Pointer[received] // from other targets; nil: none was ever due

	// The goroutine that holds schedule.busy owns the fields below.
	account account
	since   sketch.Mark // start of the calls since the last change
	counted int64       // calls that Calls has counted
	recent  decaying    // calls, as Calls counts them
}

// Owner is a learner's view of the method that it belongs to. Nil functions are not called.
type Owner struct {
	Budget    *budget.Bucket  // the target's
	Pace      *Pace           // shared by all learners of a scheduler; nil: no limit
	Calls     *Calls          // of a scheduler; nil: the method's own
	Origin    time.Time       // origin of the learner's times
	Panicked  func()          // the computation of an estimate panicked
	Evaluated func(time.Time) // the window was evaluated; called without locks
	Run       func(func())    // makes a choice without blocking the caller; nil: on a goroutine of its own
}

func (l *Learner) Start(c *Config, o Owner) {
	l.config.Store(c)
	l.owner = o
	l.window = sketch.NewKeeping(c.Window, keptCalls)
	l.forgetHedges(c)
	l.window.Mark(o.Origin) // sets the window's origin: calls may have begun before the first that ends
	l.since = math.MinInt64
	l.schedule.origin = o.Origin
	l.schedule.nextTime.Store(math.MaxInt64) // without an estimate only nextSize applies
}

// Configure sets the configuration. The learned latencies are kept, and are evaluated under c when
// the next call ends. The window keeps its length.
func (l *Learner) Configure(c *Config) {
	if *l.config.Load() != *c {
		l.config.Store(c)
		l.schedule.nextSize.Store(0)
	}
}

func (l *Learner) Config() *Config { return l.config.Load() }

// Estimate returns the estimate in force, or nil while the method is being learned.
func (l *Learner) Estimate() *Estimate { return l.current.Load() }

// EstimateFor returns the estimate for a call that begins at now, or nil while the method is being
// learned. It recomputes a stale estimate if calls have ended since: the last estimate in a burst of
// calls stems from the fastest of them, and must not decide for the next burst.
func (l *Learner) EstimateFor(now time.Time) *Estimate {
	e := l.current.Load()
	if e != nil && !now.After(e.until) {
		return e
	}
	n, c := l.schedule.learned.Load(), l.config.Load()
	if n > l.schedule.lastSize.Load() && l.schedule.old(c, n, now, staleForNext) {
		l.recompute(c, now, n)
	}
	return l.current.Load()
}

// Median returns the median latency, or 0 while it is being learned.
func (l *Learner) Median() time.Duration {
	if e := l.current.Load(); e != nil {
		return e.Median
	}
	return 0
}

// Snapshot returns the distribution of primary latency over the window.
func (l *Learner) Snapshot(now time.Time) *sketch.Distribution { return l.window.Snapshot(now) }

// Answered returns the distribution of the latency of primaries that answered within the window, and
// of the answers in others, a window of the same length or nil.
func (l *Learner) Answered(now time.Time, others *sketch.Window) *sketch.Distribution {
	return sketch.Answered(now, l.window, others)
}

// PrimaryEnded records the end of a primary at now, at age d: answered, or cut short.
func (l *Learner) PrimaryEnded(now time.Time, d time.Duration, answered bool) {
	l.window.RecordByStart(now, d, answered)
	n, c := l.schedule.learned.Add(1), l.config.Load()
	if n >= l.schedule.nextSize.Load() || l.schedule.old(c, n, now, stale) {
		l.recompute(c, now, n)
	}
}

// HedgedCall records the latency of a hedged call for its caller: its first hedge was sent at age,
// the call ended rest after that, and hedges is the most it could have had.
func (l *Learner) HedgedCall(age, rest time.Duration, hedges int) {
	if l.config.Load().Auto {
		l.measured.add(age, rest, hedges)
	}
}

// recompute updates the estimate after n records. It is a no-op if too few calls are known, or
// another goroutine is computing. If Pace refuses a choice, recompute schedules another try.
func (l *Learner) recompute(c *Config, now time.Time, n int64) {
	if n < int64(c.WarmupCalls) || !l.schedule.busy.CompareAndSwap(false, true) {
		return
	}
	first, at := l.current.Load() == nil, l.schedule.at(now)
	choosing := c.Auto && !first && n >= PredictFrom
	paced := c.Auto && !first && l.owner.Pace.take(at)
	if choosing && !paced {
		l.schedule.nextSize.Store(math.MaxInt64)
		l.schedule.nextTime.Store(at + int64(c.interval()/10))
		l.schedule.busy.Store(false)
		return
	}
	l.schedule.next(c, n, at, choosing)
	if !paced {
		l.conclude(c, now, func() { l.useQuantile(c, now, l.sinceChange(now), Never) })
		return
	}
	run := l.owner.Run
	if run == nil {
		run = func(choose func()) { go choose() }
	}
	run(func() {
		l.conclude(c, now, func() {
			began := time.Now()
			defer func() { l.owner.Pace.took(at, time.Since(began)) }()
			l.choose(c, now)
		})
	})
}

// conclude runs compute and releases schedule.busy. A panic in compute must not end the process:
// the last estimate stays in force.
func (l *Learner) conclude(c *Config, now time.Time, compute func()) {
	defer func() {
		if recover() != nil && l.owner.Panicked != nil {
			l.owner.Panicked()
		}
		l.schedule.busy.Store(false)
		if l.config.Load() != c {
			l.schedule.nextSize.Store(0) // c was replaced during compute
		}
	}()
	compute()
	if l.owner.Evaluated != nil {
		l.owner.Evaluated(now)
	}
}

// HedgeEnded records the end of a hedge of l's method at now, d after the hedge was sent to the
// method of to: answered, or cut short.
func (l *Learner) HedgeEnded(to *Learner, now time.Time, d time.Duration, answered bool) {
	l.ended.Add(1)
	if to.hedges.Load().Record(now, d, answered); to != l {
		to.receivedAt(now)
	}
}

// received is the latency of recent hedges from other targets. It is immutable.
type received struct {
	at     time.Time     // when one ended, or the first was due
	median time.Duration // a lower bound if none was answered; 0: too few are known
}

const fewReceived = 5 // with fewer hedges a slow one, such as the first of a connection, may be the median

func (l *Learner) receivedAt(now time.Time) {
	last, c := l.received.Load(), l.config.Load()
	if last != nil && last.median > 0 && now.Sub(last.at) < c.interval()/100 {
		return // computing takes as long as sending a hedge
	}
	r, hedges := &received{at: now}, l.hedges.Load()
	from, to := hedges.Newest(now, 0, fewReceived)
	if d := hedges.Between(now, from, to); d.Total() >= fewReceived {
		answered := false
		if r.median, answered = d.Quantile(0.50); !answered {
			r.median, _ = d.Ended(0.50)
		}
	}
	l.received.Store(r)
}

// MedianHere returns the median latency to expect of a hedge from another target at now: of recent
// hedges, or else of primaries, or else own, the median of primaries at the other target. A window
// after the last hedge only the primaries count: a median that is too long stops the hedges that
// would correct it.
func (l *Learner) MedianHere(now time.Time, own time.Duration) time.Duration {
	r := l.received.Load()
	if r == nil {
		r = &received{at: now}
		l.received.CompareAndSwap(nil, r)
	}
	if now.Sub(r.at) > l.config.Load().Window {
		return l.Median()
	}
	return cmp.Or(r.median, l.Median(), own)
}

// elsewhere is an unknown destination.
var elsewhere Learner

// HedgesGoElsewhere records that hedges have a destination of their own. It reports whether the
// destination was unknown.
func (l *Learner) HedgesGoElsewhere() (unknown bool) {
	return l.away.CompareAndSwap(nil, &elsewhere)
}

// HedgesGoTo records the learner of the method at the destination of first hedges: l itself if they go
// where primaries go.
func (l *Learner) HedgesGoTo(destination *Learner) {
	if l.away.Load() != destination {
		l.away.Store(destination)
	}
}

// hedgeLatency returns the latency that a plan assumes for hedges, from hedges to their destination
// and, as a prior, from primaries there. d has the primaries of the call's own destination. It returns
// nil if hedges have another destination, of which fewer than [few] latencies are known. Hedges are then
// sent after the fallback quantile of primaries or, if that is less, twice their median: if more calls
// are slow than lie above the quantile, the quantile is as long as they are, and no hedge would be sent.
func (l *Learner) hedgeLatency(now time.Time, d *sketch.Distribution) *sketch.Survival {
	to := l.away.Load()
	switch to {
	case nil, l:
		return l.Hedges(now).Plus(d.Counts().Times(keptHedges / max(float64(d.Total()), 1))).Survival()
	case &elsewhere:
		return nil
	}
	hedges, primaries := to.Hedges(now), to.Snapshot(now)
	hedges = hedges.Plus(primaries.Counts().Times(keptHedges / max(float64(primaries.Total()), keptHedges)))
	if hedges.Total() < few {
		return nil
	}
	return hedges.Plus(sketch.Counts{{Bucket: sketch.Buckets - 1, Calls: 1}}).Survival() // some answer may take forever
}

// Hedges returns the distribution of the latency of hedges to the method.
func (l *Learner) Hedges(now time.Time) *sketch.Distribution { return l.hedges.Load().Snapshot(now) }

// Longest returns the longest latency of an answered primary or hedge of the method. enough reports
// whether at least [few] latencies are known.
func (l *Learner) Longest(now time.Time) (longest time.Duration, enough bool) {
	primaries, hedges := l.Snapshot(now), l.Hedges(now)
	p, _ := primaries.Count()
	h, _ := hedges.Count()
	return max(primaries.Longest(), hedges.Longest()), p+h >= few
}

// forgetHedges drops the measured and undrawn calls and the hedges of the previous distribution.
func (l *Learner) forgetHedges(c *Config) {
	l.hedges.Store(sketch.NewKeeping(c.Window, int(keptHedges)))
	l.measured.forget()
	l.undrawn.forget()
	l.late.forget()
}
