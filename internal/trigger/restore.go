package trigger

import (
	"math"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// Knowledge is the state of a learner from which another learner can start.
type Knowledge struct {
	Primaries sketch.Counts // latency of primaries
	Hedges    sketch.Counts // latency of hedges, from when they were sent
	Outcomes  []HedgedCalls
}

// Plus merges k and o, weighted by their numbers of calls. Outcomes of the same kind are merged;
// outcomes beyond maxOutcomes are dropped.
func (k Knowledge) Plus(o Knowledge) Knowledge {
	all := slices.Concat(k.Outcomes, o.Outcomes)
	slices.SortFunc(all, byKind) // so that no kind is inserted, evicted and inserted a second time
	var r outcomes
	for _, h := range all {
		r.add(h)
	}
	return Knowledge{Primaries: k.Primaries.Plus(o.Primaries), Hedges: k.Hedges.Plus(o.Hedges), Outcomes: r.export()}
}

// takenCalls returns the number of calls that restored knowledge counts for. It is constant until
// the knowledge is dropped, because the learner's own calls contradict it or number fades.
func (l *Learner) takenCalls() int64 {
	if t := l.taken.Load(); t != nil {
		return int64(math.Round(t.Primaries.Total()))
	}
	return 0
}

// TakeOver restores k, the knowledge of another learner. It must be called after Start and before
// any other method. More than fades calls count as fades.
func (l *Learner) TakeOver(k Knowledge) {
	calls := k.Primaries.Total()
	if !(calls >= 1) {
		return
	}
	scale := min(1, fades/calls)
	l.taken.Store(&Knowledge{Primaries: k.Primaries.Times(scale), Hedges: k.Hedges.Times(scale)})
	if l.config.Load().Auto {
		for _, h := range k.Outcomes {
			l.outcomes.add(HedgedCalls{h.Age, h.Hedges, h.Rest.Times(scale)})
		}
	}
}

// First returns the estimate for a call for which Estimate returned nil. It computes one from
// restored knowledge if that covers the warm-up.
func (l *Learner) First(now time.Time) *Estimate {
	c := l.config.Load()
	if calls := l.takenCalls(); calls == 0 || calls < int64(c.WarmupCalls) {
		return nil
	}
	if l.current.Load() == nil && l.schedule.busy.CompareAndSwap(false, true) {
		l.conclude(c, now, func() { l.useQuantile(c, now, l.withTaken(new(sketch.Distribution))) })
		l.look(c, now, l.schedule.learned.Load()) // for a choice, which takes too long for a caller to wait
	}
	return l.current.Load()
}

// left returns the restored knowledge with its remaining weight, which falls linearly to 0 over the
// learner's first fades calls.
func (l *Learner) left() (k Knowledge) {
	if t, weight := l.taken.Load(), 1-float64(l.schedule.learned.Load())/fades; t != nil && weight > 0 {
		k.Primaries, k.Hedges = t.Primaries.Times(weight), t.Hedges.Times(weight)
	}
	return k
}

func (l *Learner) withTaken(d *sketch.Distribution) *sketch.Distribution {
	return d.Plus(l.left().Primaries)
}

// Knowledge returns the current knowledge, including what remains of restored knowledge. It is safe
// for concurrent use.
func (l *Learner) Knowledge(now time.Time) Knowledge {
	since := sketch.Mark(math.MinInt64)
	if e := l.current.Load(); e != nil {
		since = e.since
	}
	own := l.window.Between(now, since, sketch.Latest)
	return Knowledge{
		Primaries: l.withTaken(own).Counts(),
		Hedges:    l.knownHedges(now).Counts(),
		Outcomes:  l.outcomes.export(),
	}
}
