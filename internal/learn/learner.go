// Package learn learns the latency of the calls of one method and derives an [Estimate] from it:
// when to hedge. Each call reads the estimate with one atomic load.
//
// The estimate is recomputed about once a second, and more often while few calls are known. With
// [Config.Auto] it is a choice: the best plan that package knee finds at the price of the target's
// budget. Without, it is a quantile.
package learn

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/internal/sketch"
)

// Learner learns when a call of one method is unusually slow. After Start, its methods are safe for
// concurrent use.
type Learner struct {
	config  atomic.Pointer[Config]
	owner   Owner
	run     func(func())             // makes a choice without blocking the caller
	current atomic.Pointer[Estimate] // nil until learned
	draws   sketch.Draws

	schedule schedule
	window   *sketch.Window                // latency of primaries
	hedges   atomic.Pointer[sketch.Window] // latency of hedges, from when they were sent; nil without hedges
	outcomes outcomes
	taken    atomic.Pointer[Knowledge] // restored, immutable; nil: none, or its weight is 0

	// The goroutine that holds schedule.busy owns the fields below.
	account account
	since   sketch.Mark // start of the current distribution
	changed time.Time   // when a change of distribution was last detected; zero if never
}

// Owner is a learner's view of the method that it belongs to. Nil functions are not called.
type Owner struct {
	Budget   *budget.Bucket  // the target's
	Epoch    time.Time       // origin of the learner's times
	Panicked func()          // the computation of an estimate panicked
	Looked   func(time.Time) // the window was evaluated; called without locks
}

func (l *Learner) Start(c *Config, o Owner) {
	l.config.Store(c)
	l.owner = o
	l.run = func(choose func()) { go choose() }
	l.window = sketch.NewKeeping(c.Window, 1000)
	l.since = math.MinInt64
	l.schedule.epoch = o.Epoch
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
// learned. It recomputes a stale estimate if calls have ended since: the last estimate in a burst
// of calls stems from the fastest of them, and must not decide for the next burst.
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

// Median returns the median latency, or 0 while it is being learned.
func (l *Learner) Median() time.Duration {
	if e := l.current.Load(); e != nil {
		return e.Median
	}
	return 0
}

// Draw reports, at random with the given probability, whether to send a hedge that is due.
func (l *Learner) Draw(probability float64) bool { return l.draws.Next() < probability }

// Snapshot returns the distribution of primary latency over the window, including restored
// knowledge.
func (l *Learner) Snapshot(now time.Time) *sketch.Distribution {
	return l.withTaken(l.window.Snapshot(now))
}

// PrimaryEnded records the end of a primary at now, at age d: answered, or cut short.
func (l *Learner) PrimaryEnded(now time.Time, d time.Duration, answered bool) {
	l.window.Record(now, d, answered)
	n, c := l.schedule.learned.Add(1), l.config.Load()
	if n >= l.schedule.nextSize.Load() || l.schedule.old(c, n, now, stale) {
		l.look(c, now, n)
	}
}

// HedgedCall records the latency of a hedged call for its caller: its first hedge was sent at age,
// the call ended rest after that, and hedges is the most it could have had.
func (l *Learner) HedgedCall(age, rest time.Duration, hedges int) {
	if l.config.Load().Auto {
		l.outcomes.put(age, rest, hedges)
	}
}

// look recomputes the estimate after n records. It is a no-op if too few calls are known, or
// another goroutine is computing. If Pace refuses a choice, look schedules another try.
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
	if l.owner.Looked != nil {
		l.owner.Looked(now)
	}
}

// lately returns the calls of the window since the distribution last changed, with restored
// knowledge.
func (l *Learner) lately(now time.Time) *sketch.Distribution {
	at := l.window.Newest(now, 0)
	doubtful := !l.changed.IsZero() && now.Sub(l.changed) < unsettled*l.window.Step()
	before, newest := l.window.Split(now, l.since, at)
	slower, faster := knee.Changed(before, newest, doubtful)
	if slower { // a burst's slow calls end last: compare them with the calls they began with
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

// unsettled is the number of window steps for which a change stays in doubt: the first steps may
// hold calls from before the change.
const unsettled = 4
