package learn

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// asHedges is how many hedges are kept whatever their age, and the number of hedges that primaries count for beside them.
const asHedges = 300

// HedgeEnded records that a hedge answered at now, having taken d from when it was sent, or was cut short then.
func (l *Learner) HedgeEnded(now time.Time, d time.Duration, answered bool) {
	w := l.hedges.Load()
	if w == nil {
		l.hedges.CompareAndSwap(nil, sketch.NewKeeping(l.config.Load().Window, asHedges))
		w = l.hedges.Load()
	}
	if w != nil { // it may have been forgotten at this moment
		w.Record(now, d, answered)
	}
}

// knownHedges is the distribution of what hedges took, with what was taken over.
func (l *Learner) knownHedges(now time.Time) *sketch.Distribution {
	known := new(sketch.Distribution)
	if w := l.hedges.Load(); w != nil {
		known = w.Snapshot(now)
	}
	return known.Plus(l.left().Hedges)
}

// forgetHedges drops what is known of hedges, which belongs to a distribution that is over.
func (l *Learner) forgetHedges() {
	l.hedges.Store(nil)
	l.outcomes.forget()
}

// outcomes is what is known of hedged calls: what they still took after their first hedge, by the age at which it was sent and
// by the most hedges that they could have.
//
// This needs no assumption about how a hedge depends on its primary, and nothing of it is censored: a hedged call ends when
// the first of its attempts answers, and that is what is recorded.
type outcomes struct {
	mu    sync.Mutex // most calls are not hedged, so that a lock costs nothing
	of    []outcome  // in the order of steps and hedges
	faded time.Time
	calls int64 // of the method when it was last faded
}

// outcome is what is known of calls that could have so many hedges, and whose first one was sent at about one age.
type outcome struct {
	step   int // of the age, a third of an octave each
	hedges int
	sketch.Counts
	ages float64 // the sum of their logarithms
}

const (
	// maxOutcomes bounds what is known of a method: 48 histograms of at most 8 KB, far more than there are delays worth a try.
	maxOutcomes = 48
	// fadeTime and fadeCalls are after how long and how many calls of the method at least an outcome has a third of its weight.
	fadeTime  = 2 * time.Minute
	fadeCalls = 8000
)

func (r *outcomes) put(age, longer time.Duration, hedges int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.at(age, hedges)
	f.Add(longer, 1)
	f.ages += logAge(age)
}

// fade lowers the weight of all outcomes by the time and the calls since the last fade, whichever is less.
func (r *outcomes) fade(now time.Time, calls int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.faded.IsZero() {
		factor := math.Exp(-min(max(now.Sub(r.faded), 0).Seconds()/fadeTime.Seconds(), float64(calls-r.calls)/fadeCalls))
		for i := range r.of {
			f := &r.of[i]
			f.Counts, f.ages = f.Times(factor), f.ages*factor
		}
		r.of = slices.DeleteFunc(r.of, func(f outcome) bool { return f.Total() < 0.5 })
	}
	r.faded, r.calls = now, calls
}

func logAge(age time.Duration) float64 { return math.Log(float64(max(age, 1))) }

// at returns what is known of an age and a number of hedges, made if need be. To make room, what has the fewest calls goes.
func (r *outcomes) at(age time.Duration, hedges int) *outcome {
	made := outcome{step: int(math.Round(3 / math.Ln2 * logAge(age))), hedges: hedges}
	compare := func(a, b outcome) int { return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.hedges, b.hedges)) }
	i, found := slices.BinarySearchFunc(r.of, made, compare)
	if !found && len(r.of) == maxOutcomes {
		least := slices.MinFunc(r.of, func(a, b outcome) int { return cmp.Compare(a.Total(), b.Total()) })
		r.of = slices.DeleteFunc(r.of, func(f outcome) bool { return compare(f, least) == 0 })
		i, _ = slices.BinarySearchFunc(r.of, made, compare)
	}
	if !found {
		r.of = slices.Insert(r.of, i, made)
	}
	return &r.of[i]
}

func (r *outcomes) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of, r.faded, r.calls = nil, time.Time{}, 0
}

// export returns what is known, in the order of ages and hedges.
func (r *outcomes) export() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Outcome
	for _, f := range r.of {
		age := time.Duration(math.Exp(f.ages / f.Total())) // on average
		all = append(all, Outcome{Age: age, Hedges: f.hedges, Rest: slices.Clone(f.Counts)})
	}
	return all
}

// take adds outcomes, with their weights multiplied by a factor.
func (r *outcomes) take(all []Outcome, factor float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range all {
		if calls := o.Rest.Times(factor); calls.Total() > 0 {
			f := r.at(o.Age, o.Hedges)
			f.Take(calls)
			f.ages += calls.Total() * logAge(o.Age)
		}
	}
}
