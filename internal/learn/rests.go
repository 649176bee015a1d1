package learn

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
)

// ended is a hedged call that has ended.
type ended struct {
	age    time.Duration // at which its first hedge was sent
	rest   time.Duration // what it still took from then on
	hedges int           // the most that it could have
}

// rests is what is known of hedged calls: what they still took after their first hedge, by the age at which it was sent and
// by the most hedges that they could have.
//
// This needs no assumption about how a hedge depends on its primary, and nothing of it is censored: a hedged call ends when
// the first of its attempts answers, and that is what is recorded.
type rests struct {
	memory *sketch.Meter // counts all of it; nil: none does

	inbox sync.Mutex // most calls are not hedged, so that a lock costs nothing
	calls []ended    // since the last choice

	mu    sync.Mutex // a choice is made on one goroutine, and the knowledge read on another
	of    map[restKey]*rest
	bytes int64 // counted of it
	faded time.Time
}

type restKey struct {
	step   int // of the age, a third of an octave each
	hedges int
}

type rest struct {
	sketch.Counts
	ages float64 // the sum of their logarithms
}

const (
	// maxWaiting bounds the calls since the last choice. A second of 40,000 calls fills it, and what it then leaves out has
	// nothing new to say.
	maxWaiting = 4096
	// maxOutcomes bounds what is known of a method: 48 histograms of at most 8 KB, far more than there are delays worth a try.
	maxOutcomes = 48
	// restBytes is what a rest takes beside its histogram, with its share of the map, in bytes.
	restBytes = 96
	// fading is the time in which the weight of what is known falls to a third, and faded how many newer hedged calls it takes.
	fading = 2 * time.Minute
	faded  = 100
)

func (r *rests) put(e ended) {
	r.inbox.Lock()
	defer r.inbox.Unlock()
	if len(r.calls) < maxWaiting {
		had := cap(r.calls)
		r.calls = append(r.calls, e)
		r.memory.Add(int64(cap(r.calls)-had) * int64(unsafe.Sizeof(e)))
	}
}

// add lets what is known fade, and adds the calls that have ended since.
func (r *rests) add(now time.Time) {
	r.inbox.Lock()
	calls := r.calls
	r.calls = nil
	r.inbox.Unlock()
	r.memory.Add(-int64(cap(calls)) * int64(unsafe.Sizeof(ended{})))
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.faded.IsZero() {
		// By age, but no more than what is new can stand in for.
		factor := math.Exp(-min(max(now.Sub(r.faded), 0).Seconds()/fading.Seconds(), float64(len(calls))/faded))
		for key, f := range r.of {
			f.ages *= factor
			if f.Counts = f.Times(factor); f.Total() < 0.5 {
				delete(r.of, key)
			}
		}
	}
	r.faded = now
	for _, c := range calls {
		f := r.at(c.age, c.hedges)
		f.Add(c.rest)
		f.ages += logAge(c.age)
	}
	r.count()
}

func logAge(age time.Duration) float64 { return math.Log(float64(max(age, 1))) }

// at returns what is known of an age and a number of hedges, made now if need be.
func (r *rests) at(age time.Duration, hedges int) *rest {
	key := restKey{int(math.Round(3 / math.Ln2 * logAge(age))), hedges}
	f := r.of[key]
	if f == nil {
		if r.of == nil {
			r.of = map[restKey]*rest{}
		}
		if len(r.of) >= maxOutcomes {
			r.dropLeast()
		}
		f = &rest{}
		r.of[key] = f
	}
	return f
}

// dropLeast drops the entry with the fewest known calls, to make room.
func (r *rests) dropLeast() {
	var least restKey
	fewest := math.Inf(1)
	for key, f := range r.of {
		order := cmp.Or(cmp.Compare(f.Total(), fewest), cmp.Compare(key.step, least.step), cmp.Compare(key.hedges, least.hedges))
		if order < 0 {
			least, fewest = key, f.Total()
		}
	}
	delete(r.of, least)
}

// forget drops what is known.
func (r *rests) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of, r.faded = nil, time.Time{}
	r.count()
}

// count tells the meter what all of it takes.
func (r *rests) count() {
	bytes := int64(0)
	for _, f := range r.of {
		bytes += restBytes + int64(cap(f.Counts))*sketch.CountBytes
	}
	r.memory.Add(bytes - r.bytes)
	r.bytes = bytes
}

// outcomes returns what is known for a search.
func (r *rests) outcomes() []knee.Outcome {
	var all []knee.Outcome
	for _, o := range r.export() {
		rest := new(sketch.Distribution).Plus(o.Rest).Survival()
		all = append(all, knee.Outcome{Age: o.Age, Hedges: o.Hedges, Rest: rest, Calls: o.Rest.Total()})
	}
	return all
}

// export returns what is known, in the order of ages and hedges.
func (r *rests) export() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Outcome
	for key, f := range r.of {
		age := time.Duration(math.Exp(f.ages / f.Total())) // on average
		all = append(all, Outcome{Age: age, Hedges: key.hedges, Rest: slices.Clone(f.Counts)})
	}
	slices.SortFunc(all, func(a, b Outcome) int { // the order of a map is not the same each time
		return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(a.Hedges, b.Hedges))
	})
	return all
}

// take adds outcomes, with their weights multiplied by a factor.
func (r *rests) take(all []Outcome, factor float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range all {
		if calls := o.Rest.Times(factor); calls.Total() > 0 {
			f := r.at(o.Age, o.Hedges)
			f.Counts = f.Plus(calls)
			f.ages += calls.Total() * logAge(o.Age)
		}
	}
	r.count()
}
