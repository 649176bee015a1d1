package learn

import (
	"math"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
)

// Knowledge is what a learner knows, for another one to take over.
type Knowledge struct {
	Primaries sketch.Counts // what they take
	Hedges    sketch.Counts // the same, from when they are sent
	Outcomes  []Outcome
}

// Outcome is what became of calls whose first hedge was sent at about one age.
type Outcome struct {
	Age    time.Duration // at which it was, on average
	Hedges int           // the most that these calls could have
	Rest   sketch.Counts
}

// Plus returns what both know, by the number of calls that they know it from.
func (k Knowledge) Plus(o Knowledge) Knowledge {
	return Knowledge{
		Primaries: k.Primaries.Plus(o.Primaries),
		Hedges:    k.Hedges.Plus(o.Hedges),
		Outcomes:  mostKnown(append(slices.Clip(k.Outcomes), o.Outcomes...)),
	}
}

// mostKnown merges outcomes of the same kind, and leaves out those that exceed what a learner keeps.
func mostKnown(all []Outcome) []Outcome {
	var r rests
	r.put(all, 1)
	return r.export()
}

// Bytes is about the memory that it takes.
func (k Knowledge) Bytes() int64 {
	bytes := int64(len(k.Primaries)+len(k.Hedges)) * sketch.CountBytes
	for _, o := range k.Outcomes {
		bytes += outcomeBytes + int64(len(o.Rest))*sketch.CountBytes
	}
	return bytes
}

const outcomeBytes = 40

// fades is the number of a learner's own calls with which what was taken over has lost all of its weight, and for how many
// calls it counts at most.
const fades = 1000

// taken is what was taken over from another learner. It never changes.
type taken struct {
	Knowledge
	calls int64 // that it counts for
	bytes int64
	slow  time.Duration // the 90th percentile
}

// TakeOver has the learner begin with what another one knows. It comes after Start, and before anything else. What is known of
// many calls counts for a thousand.
func (l *Learner) TakeOver(k Knowledge) {
	calls := k.Primaries.Total()
	if !(calls >= 1) {
		return
	}
	scale := min(1, fades/calls)
	t := &taken{calls: int64(math.Round(calls * scale))}
	t.Primaries, t.Hedges = k.Primaries.Times(scale), k.Hedges.Times(scale)
	t.slow, _ = t.distribution(1).Quantile(0.9)
	t.bytes = t.Knowledge.Bytes() + takenBytes
	l.place.Memory.Add(t.bytes)
	l.taken.Store(t)
	if l.config.Load().Auto {
		l.rests.put(k.Outcomes, scale)
	}
}

const takenBytes = 128

// distribution is the distribution of primaries.
func (t *taken) distribution(weight float64) *sketch.Distribution {
	return (&sketch.Distribution{}).Plus(t.Primaries.Times(weight))
}

// takenCalls is for how many calls counts what was taken over, until the learner's own show whether it is true.
func (l *Learner) takenCalls() int64 {
	if t := l.taken.Load(); t != nil {
		return t.calls
	}
	return 0
}

// takenWeight is what is left of its weight, from 1 to 0.
func (l *Learner) takenWeight() float64 {
	return max(0, 1-float64(l.learned.Load())/fades)
}

// First returns the estimate for a call that has found none: from what was taken over, if that is enough for one.
func (l *Learner) First(now time.Time) *Estimate {
	t := l.taken.Load()
	if t == nil || t.calls < int64(l.config.Load().WarmupCalls) {
		return nil
	}
	if l.current.Load() == nil && l.busy.CompareAndSwap(false, true) {
		l.conclude(now, func() { l.take(l.config.Load(), now, t.distribution(l.takenWeight())) })
		l.look(l.config.Load(), now, l.learned.Load()) // for a choice, which takes longer than a caller should wait for
	}
	return l.current.Load()
}

// withTaken adds what was taken over to the calls of the window, unless they contradict it: then it is forgotten. Some of them
// are from earlier than the last step.
func (l *Learner) withTaken(calls, earlier *sketch.Distribution) *sketch.Distribution {
	t := l.taken.Load()
	if t == nil {
		return calls
	}
	if 2*t.slow > l.window.Step() {
		earlier = &sketch.Distribution{} // of slow calls, only the fastest may have ended by then
	}
	weight := l.takenWeight()
	switch {
	case weight == 0:
		l.forgetTaken()
		return calls
	case knee.Contradicts(t.distribution(1), calls, earlier):
		l.forgetTaken()
		l.forgetHedges()
		if l.learned.Load() < int64(l.config.Load().WarmupCalls) {
			l.current.Store(nil)
		}
		return calls
	}
	return calls.Plus(t.Primaries.Times(weight))
}

func (l *Learner) forgetTaken() {
	if t := l.taken.Swap(nil); t != nil {
		l.place.Memory.Add(-t.bytes)
	}
}

// forgetHedges drops what is known of hedges, which belongs to a distribution that is over.
func (l *Learner) forgetHedges() {
	l.evidence = evidence{}
	l.hedges.forget()
	l.rests.forget()
}

// believed adds what was taken over of primaries.
func (l *Learner) believed(d *sketch.Distribution) *sketch.Distribution {
	if t := l.taken.Load(); t != nil {
		return d.Plus(t.Primaries.Times(l.takenWeight()))
	}
	return d
}

// hedgesBelieved adds what was taken over of hedges.
func (l *Learner) hedgesBelieved(d *sketch.Distribution) *sketch.Distribution {
	if t := l.taken.Load(); t != nil {
		return d.Plus(t.Hedges.Times(l.takenWeight()))
	}
	return d
}

// Knowledge returns what is known now, what was taken over among it. It may be called at any time.
func (l *Learner) Knowledge(now time.Time) Knowledge {
	since := sketch.Mark(math.MinInt64)
	if e := l.current.Load(); e != nil {
		since = e.since
	}
	_, own := l.window.Split(now, since, since)
	return Knowledge{
		Primaries: l.believed(own).Counts(),
		Hedges:    l.hedgesBelieved(l.HedgeSnapshot(now)).Counts(),
		Outcomes:  l.rests.export(),
	}
}

// put adds outcomes, with their weights multiplied by a factor.
func (r *rests) put(all []Outcome, factor float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range all {
		rest := o.Rest.Times(factor)
		calls := rest.Total()
		if !(calls > 0) {
			continue
		}
		f := r.at(restKey{stepOf(o.Age), o.Hedges})
		f.AddCounts(rest)
		f.ages += calls * math.Log(float64(max(o.Age, 1)))
	}
	r.count()
}

// export returns what is known, in the order of ages and hedges.
func (r *rests) export() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Outcome
	for key, f := range r.of {
		all = append(all, Outcome{Age: f.age(), Hedges: key.hedges, Rest: f.Counts()})
	}
	slices.SortFunc(all, func(a, b Outcome) int { return compareOutcomes(a.Age, b.Age, a.Hedges, b.Hedges) })
	return all
}
