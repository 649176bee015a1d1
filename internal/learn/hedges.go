package learn

import (
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
	taken := l.left().Hedges
	if w := l.hedges.Load(); w != nil {
		return w.Snapshot(now).Plus(taken)
	}
	return sketch.FromCounts(taken, nil)
}

// forgetHedges drops what is known of hedges, which belongs to a distribution that is over.
func (l *Learner) forgetHedges() {
	l.hedges.Store(nil)
	l.rests.forget()
}

// rests is what is known of hedged calls: what they still took after their first hedge, by the age at which it was sent.
//
// This needs no assumption about how a hedge depends on its primary, and nothing of it is censored: a hedged call ends when
// the first of its attempts answers, and that is what is recorded.
type rests struct {
	mu    sync.Mutex // most calls are not hedged, so that a lock costs nothing
	of    []rest     // by the age, in steps of half an octave from a microsecond on: 87 at most
	faded time.Time
}

// rest is what is known of calls whose first hedge was sent at about one age.
type rest struct {
	sketch.Counts
	ages float64 // the sum of their logarithms
}

// fadeTime is how long what is known takes to fall to a third of its weight, whether or not there is anything newer. So hedges that
// did not pay are tried again within five minutes.
const fadeTime = 2 * time.Minute

func (r *rests) put(age, longer time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.at(age)
	f.Add(longer, 1)
	f.ages += logAge(age)
}

func (r *rests) at(age time.Duration) *rest {
	step := int(math.Round(2 * math.Log2(max(age.Seconds()*1e6, 1))))
	for len(r.of) <= step {
		r.of = append(r.of, rest{})
	}
	return &r.of[step]
}

// fade lets what is known fade by age.
func (r *rests) fade(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faded.IsZero() {
		r.faded = now
	}
	factor := math.Exp(-max(now.Sub(r.faded), 0).Seconds() / fadeTime.Seconds())
	for i := range r.of {
		f := &r.of[i]
		if f.Counts, f.ages = f.Times(factor), f.ages*factor; f.Total() < 0.5 {
			*f = rest{}
		}
	}
	r.faded = now
}

func logAge(age time.Duration) float64 { return math.Log(float64(max(age, 1))) }

func (r *rests) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of = nil
}

// export returns what is known, in the order of ages.
func (r *rests) export() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Outcome
	for _, f := range r.of {
		if calls := f.Total(); calls > 0 {
			all = append(all, Outcome{Age: time.Duration(math.Exp(f.ages / calls)), Rest: slices.Clone(f.Counts)})
		}
	}
	return all
}

// take adds outcomes, with their weights multiplied by a factor.
func (r *rests) take(all []Outcome, factor float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range all {
		f, calls := r.at(o.Age), o.Rest.Times(factor)
		f.Counts, f.ages = f.Plus(calls), f.ages+calls.Total()*logAge(o.Age)
	}
}
