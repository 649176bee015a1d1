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

// mailbox takes hedged calls until the next choice. Most calls are not hedged, so that a lock costs nothing.
type mailbox struct {
	memory *sketch.Meter // counts what the calls take; nil: none does
	mu     sync.Mutex
	calls  []ended
}

// mailboxSize bounds the mailbox. A second of 40,000 calls fills it, and what it then leaves out has nothing new to say.
const mailboxSize = 4096

func (m *mailbox) put(e ended) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls) < mailboxSize {
		had := cap(m.calls)
		m.calls = append(m.calls, e)
		m.count(cap(m.calls) - had)
	}
}

func (m *mailbox) empty() []ended {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	m.count(-cap(calls))
	return calls
}

// count counts the memory of so many more calls.
func (m *mailbox) count(calls int) { m.memory.Add(int64(calls) * int64(unsafe.Sizeof(ended{}))) }

// rests is what is known of hedged calls: what they still took after their first hedge, by the age at which it was sent and
// by the most hedges that they could have.
//
// This needs no assumption about how a hedge depends on its primary, and nothing of it is censored: a hedged call ends when
// the first of its attempts answers, and that is what is recorded.
type rests struct {
	memory *sketch.Meter // counts what is known; nil: none does
	mu     sync.Mutex    // a choice is made on one goroutine, and the knowledge read on another
	bytes  int64         // counted
	of     map[restKey]*rest
	faded  time.Time
}

type restKey struct {
	step   int // of the age, a third of an octave each
	hedges int
}

type rest struct {
	sketch.Fading
	ages float64 // the sum of their logarithms
}

// stepOf is the step of an age.
func stepOf(age time.Duration) int {
	return int(math.Round(3 * math.Log2(float64(max(age, 1)))))
}

// add takes note of ended calls, and lets what is known fade.
func (r *rests) add(now time.Time, calls []ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.faded.IsZero() {
		// By age, but no more than what is new can stand in for.
		factor := math.Exp(-min(max(now.Sub(r.faded), 0).Seconds()/fading.Seconds(), float64(len(calls))/faded))
		for key, f := range r.of {
			f.ages *= factor
			if f.Fade(factor); f.Total() < 0.5 {
				delete(r.of, key)
			}
		}
	}
	r.faded = now
	for _, c := range calls {
		f := r.at(restKey{stepOf(c.age), c.hedges})
		f.Add(c.rest)
		f.ages += math.Log(float64(max(c.age, 1)))
	}
	r.count()
}

// at returns what is known of a key, made now if need be.
func (r *rests) at(key restKey) *rest {
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

// age is the age at which the hedges were sent, on average.
func (f *rest) age() time.Duration { return time.Duration(math.Exp(f.ages / f.Total())) }

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
		bytes += restBytes + f.Bytes()
	}
	r.memory.Add(bytes - r.bytes)
	r.bytes = bytes
}

// restBytes is what a rest takes beside its histogram, with its share of the map, in bytes.
const restBytes = 96

// dropLeast makes room by what the fewest calls are known of.
func (r *rests) dropLeast() {
	var least restKey
	fewest := math.Inf(1)
	for key, f := range r.of {
		if f.Total() < fewest || f.Total() == fewest && (key.step < least.step || key.step == least.step && key.hedges < least.hedges) {
			least, fewest = key, f.Total()
		}
	}
	delete(r.of, least)
}

// maxOutcomes bounds what is known of a method: 48 histograms of 0.5 to 4 KB, far more than there are delays worth a try.
const maxOutcomes = 48

// fading is the time in which the weight of what is known falls to a third.
const fading = 2 * time.Minute

// faded is how many newer hedged calls it takes for that.
const faded = 100

// outcomes returns what is known for a search.
func (r *rests) outcomes() []knee.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []knee.Outcome
	for key, f := range r.of {
		all = append(all, knee.Outcome{
			Age: f.age(), Hedges: key.hedges, Rest: f.Survival(), Calls: f.Total(),
		})
	}
	slices.SortFunc(all, func(a, b knee.Outcome) int { // the order of a map is not the same each time
		return compareOutcomes(a.Age, b.Age, a.Hedges, b.Hedges)
	})
	return all
}

func compareOutcomes(ageA, ageB time.Duration, hedgesA, hedgesB int) int {
	return cmp.Or(cmp.Compare(ageA, ageB), cmp.Compare(hedgesA, hedgesB))
}
