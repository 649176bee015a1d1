package trigger

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// Restore gives the learner the latency of another learner's primaries. It must be called after
// Start and before any other method. More than keptCalls calls count as keptCalls.
func (l *Learner) Restore(primaries sketch.Counts) {
	if calls := primaries.Total(); calls >= 1 {
		primaries = primaries.Times(min(1, float64(keptCalls)/calls))
		l.restored.Store(&primaries)
	}
}

// restoredCalls returns the number of calls that restored latencies count for. It is constant until
// they are dropped, because the learner's own calls contradict them or number keptCalls.
func (l *Learner) restoredCalls() int64 {
	if r := l.restored.Load(); r != nil {
		return int64(math.Round(r.Total()))
	}
	return 0
}

// First returns the estimate for a call for which Estimate returned nil. It computes one from
// restored latencies if they cover the warm-up.
func (l *Learner) First(now time.Time) *Estimate {
	c := l.config.Load()
	if calls := l.restoredCalls(); calls == 0 || calls < int64(c.WarmupCalls) {
		return nil
	}
	if l.current.Load() == nil && l.schedule.busy.CompareAndSwap(false, true) {
		l.conclude(c, now, func() { l.useQuantile(c, now, l.withRestored(new(sketch.Distribution)), Never) })
		l.recompute(c, now, l.schedule.learned.Load()) // for a choice, which takes too long for a caller to wait
	}
	return l.current.Load()
}

// withRestored returns d with the restored latencies. Their weight falls linearly to 0 over the
// learner's first keptCalls calls.
func (l *Learner) withRestored(d *sketch.Distribution) *sketch.Distribution {
	if r, weight := l.restored.Load(), 1-float64(l.schedule.learned.Load())/float64(keptCalls); r != nil && weight > 0 {
		return d.Plus(r.Times(weight))
	}
	return d
}

// Primaries returns the latency of primaries since it last changed, for Restore.
func (l *Learner) Primaries(now time.Time) sketch.Counts {
	since := sketch.Mark(math.MinInt64)
	if e := l.current.Load(); e != nil {
		since = e.since
	}
	return l.withRestored(l.window.Between(now, since, sketch.Latest)).Counts()
}
