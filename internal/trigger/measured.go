package trigger

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// HedgedCalls is the remaining latency of hedged calls with the same bound on their hedges and
// about the same age at their first hedge.
//
// The remaining latency assumes nothing about how a hedge depends on its primary, and is never
// censored: a hedged call ends with the first answer of any attempt, and that moment is recorded.
type HedgedCalls struct {
	Age    time.Duration // at which the first hedge was sent: the geometric mean
	Hedges int           // bound on the hedges of these calls
	Rest   sketch.Counts // remaining latency after the first hedge
}

// step returns the age in thirds of an octave.
func (h *HedgedCalls) step() int {
	return int(math.Round(3 / math.Ln2 * math.Log(float64(max(h.Age, 1)))))
}

// byKind orders hedged calls by the step of their age, then by their bound on hedges.
func byKind(a, b HedgedCalls) int {
	return cmp.Or(cmp.Compare(a.step(), b.step()), cmp.Compare(a.Hedges, b.Hedges))
}

// measured holds hedged calls by kind.
type measured struct {
	mu    sync.Mutex    // uncontended: most calls are not hedged
	of    []HedgedCalls // sorted by kind
	faded time.Time     // the last decay; zero: none
}

const maxKinds = 48 // of a method, at most 8 KB each: far more than there are delays worth trying

// add adds a call with at most the given number of hedges, its first one at age, that ended rest
// after that. If there are maxKinds, the kind with the fewest calls is evicted.
func (r *measured) add(age, rest time.Duration, hedges int) {
	h := HedgedCalls{Age: age, Hedges: hedges}
	r.mu.Lock()
	defer r.mu.Unlock()
	i, found := slices.BinarySearchFunc(r.of, h, byKind)
	if !found && len(r.of) == maxKinds {
		least := slices.MinFunc(r.of, func(a, b HedgedCalls) int { return cmp.Compare(a.Rest.Total(), b.Rest.Total()) })
		r.of = slices.DeleteFunc(r.of, func(o HedgedCalls) bool { return byKind(o, least) == 0 })
		i, _ = slices.BinarySearchFunc(r.of, h, byKind)
	}
	if !found {
		r.of = slices.Insert(r.of, i, h)
	}
	o := &r.of[i]
	share := 1 / (1 + o.Rest.Total())
	o.Age = time.Duration(math.Round(math.Pow(float64(max(o.Age, 1)), 1-share) * math.Pow(float64(max(age, 1)), share)))
	o.Rest.Add(rest)
}

// recent decays all calls by the time since it was last called, and returns copies, sorted by kind.
func (r *measured) recent(now time.Time) (all []HedgedCalls) {
	r.mu.Lock()
	defer r.mu.Unlock()
	factor := 1.0
	if !r.faded.IsZero() {
		factor = math.Exp(-max(now.Sub(r.faded), 0).Seconds() / fadeTime.Seconds())
	}
	r.faded = now
	for i := range r.of {
		r.of[i].Rest = r.of[i].Rest.Times(factor)
	}
	r.of = slices.DeleteFunc(r.of, func(o HedgedCalls) bool { return o.Rest.Total() < 0.5 })
	for _, o := range r.of {
		o.Rest = slices.Clone(o.Rest)
		all = append(all, o)
	}
	return all
}

func (r *measured) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of, r.faded = nil, time.Time{}
}

// observed compares the hedged calls of one age with the prediction. For each point, saved is the number
// of calls that hedges answered before the point, and predicted is that number if hedges were
// independent of their primaries.
type observed struct {
	age              time.Duration
	saved, predicted []float64
}

// near returns the weight, 0 to 1, at an age of calls that were measured at another age: 0 if one age is
// at least twice the other.
func near(age, measured time.Duration) float64 {
	return max(1-math.Abs(math.Log2(float64(age)/float64(measured))), 0)
}

// kept returns the expected share of the predicted savings, 0 to 1, of a first hedge at age for each
// point. The prior trusts the prediction. The shares are the same for any number of hedges, and are
// computed once for each age.
func (s *search) kept(age time.Duration) []float64 {
	if known := s.shares[age]; known != nil {
		return known
	}
	shares, weights := make([]float64, len(s.points)), make([]float64, len(s.observed))
	for k, o := range s.observed {
		weights[k] = near(age, o.age)
	}
	for i := range shares {
		saved, predicted := 0.0, 0.0
		for k, o := range s.observed {
			saved, predicted = saved+weights[k]*o.saved[i], predicted+weights[k]*o.predicted[i]
		}
		shares[i] = min(max((assumed+saved)/(assumed+predicted), 0), 1)
	}
	s.shares[age] = shares
	return shares
}

// observe compares the measured calls with the predicted latency without hedges, and with hedges that are
// independent of their primaries.
func (s *search) observe() {
	for _, h := range s.Measured {
		// Ages are averages of delays, which are bucket edges. Without the added thousandth,
		// rounding could move an age into the bucket below.
		rest, due := new(sketch.Distribution).Plus(h.Rest).Survival(), s.Primary.At(h.Age+h.Age/1000)
		if rest == nil || due <= 0 {
			continue
		}
		o := observed{h.Age, make([]float64, len(s.points)), make([]float64, len(s.points))}
		for i, p := range s.points {
			if p.at > h.Age {
				without := p.share / due
				o.saved[i] = h.Rest.Total() * (without - rest.At(p.at-h.Age))
				o.predicted[i] = h.Rest.Total() * without * s.answered(h.Age, h.Hedges, p.at)
			}
		}
		s.observed = append(s.observed, o)
	}
}
