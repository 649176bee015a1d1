// Package learn knows what calls of one method took, and concludes from it when they are to be hedged: an [Estimate], which
// every call reads with one atomic load.
//
// It is computed anew about once a second, and more often while little is known. With [Config.Auto] that is a choice: the best
// plan that package knee finds, at the price of the target's budget. Without, it is a quantile.
package learn

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/internal/sketch"
)

// Learner learns when a call of one method has become unusually slow. Its methods may be called concurrently, after Start.
type Learner struct {
	config  atomic.Pointer[Config]
	owner   Owner
	run     func(func())             // makes a choice without keeping the caller waiting
	current atomic.Pointer[Estimate] // nil until learned
	draws   sketch.Draws

	schedule schedule
	window   *sketch.Window                // what primaries took
	hedges   atomic.Pointer[sketch.Window] // what hedges took from when they were sent; nil until there is one
	outcomes outcomes
	taken    atomic.Pointer[Knowledge] // what was taken over, never changed; nil: nothing, or it has no weight any more

	// The rest is used only by the goroutine that computes.
	account account
	since   sketch.Mark // from when on latencies follow one distribution
	changed time.Time   // when the distribution was last found to have changed; zero if never
}

// Owner is what a learner needs of the method that it belongs to. Functions that are nil are not called.
type Owner struct {
	Budget   *budget.Bucket  // the target's
	Epoch    time.Time       // what times are counted from
	Panicked func()          // an estimate could not be computed because of a panic
	Looked   func(time.Time) // what is known was looked at; no lock is held
}

func (l *Learner) Start(c *Config, o Owner) {
	l.config.Store(c)
	l.owner = o
	l.run = func(choose func()) { go choose() }
	l.window = sketch.NewKeeping(c.Window, 1000)
	l.since = math.MinInt64
	l.schedule.epoch = o.Epoch
	l.schedule.nextTime.Store(math.MaxInt64) // without an estimate only nextSize counts
}

// Configure sets the configuration to learn under from now on. All that was learned stays, and is looked at again when the
// next call has ended. The window keeps its length.
func (l *Learner) Configure(c *Config) {
	if *l.config.Load() != *c {
		l.config.Store(c)
		l.schedule.nextSize.Store(0)
	}
}

func (l *Learner) Config() *Config { return l.config.Load() }

// Estimate returns what is in force, nil while the method is being learned.
func (l *Learner) Estimate() *Estimate { return l.current.Load() }

// EstimateFor returns what is in force for a call that begins at now, nil while the method is being learned. It looks again at
// what was learned if calls ended since that was last done, and time has passed: what was learned last in a burst of calls
// comes from the fastest of them, and the next burst must not go by that.
func (l *Learner) EstimateFor(now time.Time) *Estimate {
	e := l.current.Load()
	if e == nil || !now.After(e.until) {
		return e
	}
	n, c := l.schedule.learned.Load(), l.config.Load()
	if n > l.schedule.lastSize.Load() && l.schedule.old(c, n, now, staleForNext) {
		l.look(c, now, n)
	}
	return l.current.Load()
}

// Median is the median latency, 0 while it is being learned.
func (l *Learner) Median() time.Duration {
	if e := l.current.Load(); e != nil {
		return e.Median
	}
	return 0
}

// Draw decides whether a hedge that is due is sent, with the given probability.
func (l *Learner) Draw(probability float64) bool { return l.draws.Next() < probability }

// Snapshot is the distribution of what primaries took over the window, and of what was taken over.
func (l *Learner) Snapshot(now time.Time) *sketch.Distribution {
	return l.withTaken(l.window.Snapshot(now))
}

// PrimaryEnded records that a primary answered at now, having taken d, or was cut short at that age.
func (l *Learner) PrimaryEnded(now time.Time, d time.Duration, answered bool) {
	l.window.Record(now, d, answered)
	n, c := l.schedule.learned.Add(1), l.config.Load()
	if n >= l.schedule.nextSize.Load() || l.schedule.old(c, n, now, stale) {
		l.look(c, now, n)
	}
}

// HedgedCall records what a hedged call took for its caller: its first hedge was sent at the given age, it took so much
// longer from then on, and it could have had so many hedges.
func (l *Learner) HedgedCall(age, rest time.Duration, hedges int) {
	if l.config.Load().Auto {
		l.outcomes.put(age, rest, hedges)
	}
}

// look computes the estimate anew, after n records, unless too little is known or another goroutine or learner is at it.
func (l *Learner) look(c *Config, now time.Time, n int64) {
	known, at := n+l.takenCalls(), l.schedule.at(now)
	if known < int64(c.WarmupCalls) || !l.schedule.busy.CompareAndSwap(false, true) {
		return
	}
	choosing := c.Auto && known >= PredictFrom
	paced := c.Auto && known >= earlyFrom && c.Pace.take(at)
	if choosing && !paced {
		l.schedule.postpone(c, at)
		l.schedule.busy.Store(false)
		return
	}
	l.schedule.next(c, n, at, choosing)
	if !paced {
		l.conclude(c, now, func() {
			l.useQuantile(c, now, l.lately(now))
		})
		return
	}
	l.run(func() {
		l.conclude(c, now, func() {
			began := time.Now()
			defer func() { c.Pace.took(time.Since(began)) }()
			l.choose(c, now)
		})
	})
}

// conclude computes the estimate anew. If that panics, which must not end the process, the last estimate stays in force.
func (l *Learner) conclude(c *Config, now time.Time, compute func()) {
	defer func() {
		if recover() != nil && l.owner.Panicked != nil {
			l.owner.Panicked()
		}
		l.schedule.busy.Store(false)
		if l.config.Load() != c {
			l.schedule.nextSize.Store(0) // it was replaced meanwhile
		}
	}()
	compute()
	if l.owner.Looked != nil {
		l.owner.Looked(now)
	}
}

// lately returns what is in the window since the distribution last changed.
func (l *Learner) lately(now time.Time) *sketch.Distribution {
	at := l.window.Newest(now, 0)
	doubtful := !l.changed.IsZero() && now.Sub(l.changed) < unsettled*l.window.Step()
	before, newest := l.window.Split(now, l.since, at)
	slower, faster := knee.Changed(before, newest, doubtful)
	if slower { // the slow ones of a burst end last: they are compared together with those that began with them
		at = l.window.Newest(now, knee.Tail(newest.Survival(), 0.9))
		before, newest = l.window.Split(now, l.since, at)
		slower, _ = knee.Changed(before, newest, doubtful)
	}
	if slower || faster {
		l.since, l.changed = at, now
		l.taken.Store(nil)
		l.forgetHedges()
		return newest
	}
	_, all := l.window.Split(now, l.since, l.since)
	return l.checkTaken(all, before)
}

// unsettled is how many steps of the window a change stays in doubt: the first of them may hold calls from before it.
const unsettled = 4
