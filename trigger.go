package hedge

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/sketch"
)

// trigger learns when a call of one method has become unusually slow. Reading it is one atomic load; it is
// computed anew at most once a second, and more often only while little is known.
type trigger struct {
	window  *sketch.Window
	current atomic.Pointer[estimate] // nil until learned

	learned  atomic.Int64 // latencies and bounds recorded so far
	nextSize atomic.Int64 // learned at which to compute anew
	nextTime atomic.Int64 // time at which to compute anew, ns after the scheduler's epoch
	busy     atomic.Bool  // somebody computes
}

// estimate is what the window said when it was last looked at.
type estimate struct {
	delay  time.Duration
	median time.Duration
}

// delay is the age at which a call gets its first hedge; false while that is being learned.
func (t *trigger) delay() (time.Duration, bool) {
	if e := t.current.Load(); e != nil {
		return e.delay, true
	}
	return 0, false
}

// median is the median latency, 0 while it is being learned.
func (t *trigger) median() time.Duration {
	if e := t.current.Load(); e != nil {
		return e.median
	}
	return 0
}

// refresh computes the estimate anew if that is due. The caller has just recorded something.
func (t *trigger) refresh(s *Scheduler, now time.Time) {
	n := t.learned.Add(1)
	at := int64(now.Sub(s.epoch))
	if n < t.nextSize.Load() && at < t.nextTime.Load() {
		return
	}
	if n < int64(s.config.warmupCalls) || !t.busy.CompareAndSwap(false, true) {
		return
	}
	defer t.busy.Store(false)
	// By size as well as by time, so that a fast method does not live its first second, thousands of calls, on
	// an estimate from its first twenty.
	t.nextSize.Store(n + n/4 + 1)
	t.nextTime.Store(at + int64(s.config.window/refreshes))

	d := t.window.Snapshot(now)
	q, ok := d.Quantile(s.config.percentile)
	if !ok {
		return // the last estimate is better than none
	}
	// The upper edge of the quantile's bucket: a service that always takes 20 ms must not be hedged because 20 ms
	// was rounded down.
	edge := time.Duration(float64(q) * (1 + halfBucket))
	median, _ := d.Quantile(0.50)
	t.current.Store(&estimate{delay: max(edge, s.config.minDelay), median: median})
}

// refreshes is how often an estimate is computed over one window: once a second in the default one.
const refreshes = 30

// halfBucket is how far, relatively, the upper edge of a sketch's bucket lies above the value that stands for
// the bucket, at an accuracy of 1%: 1/(1-0.01), rounded up.
const halfBucket = 0.0102

// neverLearned is the nextTime of a trigger that has no estimate yet: only nextSize counts.
const neverLearned = math.MaxInt64
