package hedge

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
)

// learner learns when a call of one method has become unusually slow. Reading it is one atomic load; it is computed anew
// at most once a second, and more often only while little is known.
type learner struct {
	window  *sketch.Window           // what primaries took
	current atomic.Pointer[estimate] // nil until learned

	learned  atomic.Int64 // latencies and bounds recorded so far
	nextSize atomic.Int64 // learned at which to compute anew
	nextTime atomic.Int64 // time at which to compute anew, ns after the scheduler's epoch
	busy     atomic.Bool  // somebody computes

	hedges outcomes
	chance chance

	// What follows belongs to who computes.
	since     time.Time // from when on the calls in the window follow the law that they follow now
	first     time.Time // when the window was first looked at
	changed   time.Time // when it was last found that the law had changed; zero if never
	evidence  evidence
	trickle   *budget.Bucket // nil until hedging first stepped down
	promising int            // how many times in a row hedging would have been worthwhile since it stepped down
}

// estimate is what was concluded when the window was last looked at.
type estimate struct {
	delay       time.Duration
	probability float64        // with which a hedge that is due is sent
	hedges      int            // the most of one call
	trickle     *budget.Bucket // what pays when hedging has stepped down; nil otherwise
	median      time.Duration

	since  time.Time // of the calls that it was made from
	choice *choice   // what Auto chose; nil with another trigger and while it has too few calls
}

// median is the median latency, 0 while it is being learned.
func (l *learner) median() time.Duration {
	if e := l.current.Load(); e != nil {
		return e.median
	}
	return 0
}

// refresh computes the estimate anew if that is due. The caller has just recorded something.
func (l *learner) refresh(s *Scheduler, now time.Time, m *method) {
	n := l.learned.Add(1)
	at := int64(now.Sub(s.epoch))
	if n < l.nextSize.Load() && at < l.nextTime.Load() {
		return
	}
	if n < int64(s.config.warmupCalls) || !l.busy.CompareAndSwap(false, true) {
		return
	}
	// By size as well as by time, so that a fast method does not live its first second, thousands of calls, on
	// an estimate from its first twenty.
	auto := s.config.trigger.kind == autoTrigger && n >= autoFrom && m.policy == nil
	if auto {
		l.nextSize.Store(2 * n)
	} else {
		l.nextSize.Store(n + n/4 + 1)
	}
	l.nextTime.Store(at + int64(s.config.window/refreshes))
	if auto {
		// A choice takes longer than a caller should wait for.
		burst := m.target.budget.Burst(now)
		go l.conclude(m, func() { l.choose(&s.config, now, burst) })
		return
	}
	l.conclude(m, func() {
		all, _ := l.lately(now)
		l.take(&s.config, all)
	})
}

// conclude computes the estimate anew. If that panics, which must not end the process, the last estimate stays in force.
func (l *learner) conclude(m *method, compute func()) {
	defer l.busy.Store(false)
	defer func() {
		if recover() != nil {
			m.counters.update(func(s *Stats) { s.TriggerPanics++ })
		}
	}()
	compute()
}

// take has calls hedged at the trigger's quantile of d.
func (l *learner) take(c *config, d *sketch.Distribution) {
	q := c.trigger.quantile
	if c.trigger.kind != percentileTrigger {
		q = defaultPercentile
	}
	delay, ok := d.Quantile(q)
	if !ok {
		return // the last estimate is better than none
	}
	// The upper edge of the quantile's bucket: a service that always takes 20 ms must not be hedged because 20 ms
	// was rounded down.
	edge := time.Duration(float64(delay) * (1 + halfBucket))
	median, _ := d.Quantile(0.50)
	l.current.Store(&estimate{
		delay:       max(edge, c.minDelay),
		probability: 1,
		hedges:      c.maxHedges,
		median:      median,
		since:       l.since,
	})
}

// lately returns what is in the window of the time since the law last changed, and the newest part of that.
func (l *learner) lately(now time.Time) (all, newest *sketch.Distribution) {
	if l.first.IsZero() {
		l.first = now
	}
	at := now.Add(-l.window.Step()) // one whole step at least
	lately := !l.changed.IsZero() && now.Sub(l.changed) < unsettled*l.window.Step()
	before, newest := l.window.Split(now, l.since, at)
	if knee.Changed(before, newest, lately) {
		l.since, l.changed = at, now
		l.evidence = evidence{}
		l.hedges.forget()
		return newest, newest
	}
	_, all = l.window.Split(now, l.since, l.since)
	return all, newest
}

// unsettled is for how many steps after a change of law the first of them may hold calls of before.
const unsettled = 4

// refreshes is how often an estimate is computed over one window: once a second in the default one.
const refreshes = 30

// halfBucket is how far, relatively, the upper edge of a sketch's bucket lies above the value that stands for
// the bucket, at an accuracy of 1%: 1/(1-0.01), rounded up.
const halfBucket = 0.0102

// neverLearned is the nextTime of a learner that has no estimate yet: only nextSize counts.
const neverLearned = math.MaxInt64
