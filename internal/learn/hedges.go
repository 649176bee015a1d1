package learn

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// asHedges is the number of hedges that are kept regardless of age, and the weight of primaries, in
// hedges, in the estimate of hedge latency.
const asHedges = 300

// HedgeEnded records the end of a hedge at now, d after it was sent: answered, or cut short.
func (l *Learner) HedgeEnded(now time.Time, d time.Duration, answered bool) {
	w := l.hedges.Load()
	if w == nil {
		l.hedges.CompareAndSwap(nil, sketch.NewKeeping(l.config.Load().Window, asHedges))
		w = l.hedges.Load()
	}
	if w != nil { // nil if a concurrent forgetHedges dropped it
		w.Record(now, d, answered)
	}
}

// knownHedges returns the distribution of hedge latency, including restored knowledge.
func (l *Learner) knownHedges(now time.Time) *sketch.Distribution {
	known := new(sketch.Distribution)
	if w := l.hedges.Load(); w != nil {
		known = w.Snapshot(now)
	}
	return known.Plus(l.left().Hedges)
}

// forgetHedges drops the hedges and outcomes of the previous distribution.
func (l *Learner) forgetHedges() {
	l.hedges.Store(nil)
	l.outcomes.forget()
}

// outcomes holds the remaining latency of hedged calls after the first hedge, by the age at which
// it was sent and by the maximum number of hedges of the call.
//
// The remaining latency assumes nothing about how a hedge depends on its primary, and is never
// censored: a hedged call ends with the first answer of any attempt, and that moment is recorded.
type outcomes struct {
	mu    sync.Mutex // uncontended: most calls are not hedged
	of    []outcome  // sorted by step, then hedges
	faded time.Time
	calls int64 // of the method, at the last fade
}

// outcome holds calls with the same maximum number of hedges and about the same age at their first
// hedge.
type outcome struct {
	step   int // of the age, in thirds of an octave
	hedges int
	sketch.Counts
	ages float64 // sum of the logarithms of the ages
}

const (
	// maxOutcomes bounds the memory of a method: 48 histograms of at most 8 KB, far more than there
	// are delays worth trying.
	maxOutcomes = 48
	// fadeTime and fadeCalls are the time and the number of the method's calls in which the weight
	// of an outcome falls to 1/e. The slower of the two applies.
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

// fade decays all outcomes by the time or the calls since the last fade, whichever decays less.
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

// at returns the outcome for an age and a number of hedges, and inserts it if missing. If outcomes
// is full, the outcome with the fewest calls is evicted.
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

// export returns copies of all outcomes, sorted by age, then hedges.
func (r *outcomes) export() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Outcome
	for _, f := range r.of {
		age := time.Duration(math.Exp(f.ages / f.Total())) // geometric mean
		all = append(all, Outcome{Age: age, Hedges: f.hedges, Rest: slices.Clone(f.Counts)})
	}
	return all
}

// take adds outcomes, with weights multiplied by factor.
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
