package learn

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/internal/sketch"
)

// Knowledge is what a learner knows, for another one to take over.
type Knowledge struct {
	Primaries sketch.Counts // what they take
	Hedges    sketch.Counts // the same, from when they are sent
	Outcomes  []Outcome
}

// Outcome is what became of calls whose first hedge was sent at about one age.
type Outcome = knee.Outcome

// Plus returns what both know, by the number of calls that they know it from. Outcomes of the same kind are merged, and those
// left out that exceed what a learner keeps.
func (k Knowledge) Plus(o Knowledge) Knowledge {
	all := slices.Concat(k.Outcomes, o.Outcomes)
	// Each kind comes at once, so that none is made, left out for another one and made again.
	slices.SortFunc(all, func(a, b Outcome) int { return cmp.Or(cmp.Compare(a.Hedges, b.Hedges), cmp.Compare(a.Age, b.Age)) })
	var r outcomes
	r.take(all, 1)
	return Knowledge{Primaries: k.Primaries.Plus(o.Primaries), Hedges: k.Hedges.Plus(o.Hedges), Outcomes: r.export()}
}

// fades is the number of a learner's own calls with which what was taken over has lost all of its weight, and for how many
// calls it counts at most.
const fades = 1000

// takenCalls returns for how many calls what was taken over counts, until the learner's own show whether it is true.
func (l *Learner) takenCalls() int64 {
	if t := l.taken.Load(); t != nil {
		return int64(math.Round(t.Primaries.Total()))
	}
	return 0
}

// TakeOver makes the learner begin with what another one knows. It comes after Start, and before anything else. More than a
// thousand known calls count as a thousand.
func (l *Learner) TakeOver(k Knowledge) {
	calls := k.Primaries.Total()
	if !(calls >= 1) {
		return
	}
	scale := min(1, fades/calls)
	l.taken.Store(&Knowledge{Primaries: k.Primaries.Times(scale), Hedges: k.Hedges.Times(scale)})
	if l.config.Load().Auto {
		l.outcomes.take(k.Outcomes, scale)
	}
}

// First returns the estimate for a call that has found none: from what was taken over, if that is enough for one.
func (l *Learner) First(now time.Time) *Estimate {
	c := l.config.Load()
	if calls := l.takenCalls(); calls == 0 || calls < int64(c.WarmupCalls) {
		return nil
	}
	if l.current.Load() == nil && l.schedule.busy.CompareAndSwap(false, true) {
		l.conclude(c, now, func() { l.useQuantile(c, now, l.withTaken(new(sketch.Distribution))) })
		l.look(c, now, l.schedule.learned.Load()) // for a choice, which takes longer than a caller should wait for
	}
	return l.current.Load()
}

// left returns what was taken over, with the weight that is left after so many calls of the learner's own.
func (l *Learner) left() (k Knowledge) {
	if t, weight := l.taken.Load(), 1-float64(l.schedule.learned.Load())/fades; t != nil && weight > 0 {
		k.Primaries, k.Hedges = t.Primaries.Times(weight), t.Hedges.Times(weight)
	}
	return k
}

func (l *Learner) withTaken(d *sketch.Distribution) *sketch.Distribution {
	return d.Plus(l.left().Primaries)
}

// checkTaken adds what was taken over to the calls of the window, unless they contradict it: then it is forgotten. Some of
// them are from earlier than the last step. Of calls that began together the fastest end first. So all calls tell whether they are
// slower than what was taken over, and those that ended earlier whether they are faster.
func (l *Learner) checkTaken(calls, earlier *sketch.Distribution) *sketch.Distribution {
	t, own := l.taken.Load(), l.schedule.learned.Load()
	if t == nil {
		return calls
	}
	expected := new(sketch.Distribution).Plus(t.Primaries)
	slower, _ := knee.Changed(expected, calls, true)
	_, faster := knee.Changed(expected, earlier, true)
	if slow, _ := expected.Quantile(0.9); 2*slow > l.window.Step() {
		faster = false // of slow calls, only the fastest may have ended by then
	}
	switch {
	case own >= fades:
		l.taken.Store(nil)
	case slower || faster:
		l.taken.Store(nil)
		l.forgetHedges()
		if own < int64(l.config.Load().WarmupCalls) {
			l.current.Store(nil)
		}
	}
	return l.withTaken(calls)
}

// Knowledge returns what is known now, what was taken over among it. It may be called at any time.
func (l *Learner) Knowledge(now time.Time) Knowledge {
	since := sketch.Mark(math.MinInt64)
	if e := l.current.Load(); e != nil {
		since = e.since
	}
	_, own := l.window.Split(now, since, since)
	return Knowledge{
		Primaries: l.withTaken(own).Counts(),
		Hedges:    l.knownHedges(now).Counts(),
		Outcomes:  l.outcomes.export(),
	}
}
