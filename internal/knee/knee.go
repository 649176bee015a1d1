// Package knee computes when to hedge: the delay, the probability and the number of hedges whose gain exceeds the price of their load
// by the most.
//
// The model, its formulas and sources, and where it is wrong are in docs/trigger.md. With one hedge a plan is the policy SingleR of
// Kaler, He and Elnikety (SPAA 2017). Where attempts depend on each other, [Outcome] corrects the promise by what hedged
// calls took.
package knee

import (
	"math"
	"sort"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// Problem is what a choice is made from.
type Problem struct {
	Primary *sketch.Survival // of primaries
	Hedge   *sketch.Survival // of hedges, from when they are sent

	// Outcomes is what became of hedged calls, in no order; empty if nothing is known.
	Outcomes []Outcome

	Load     float64       // the most extra attempts a call, on average
	Hedges   int           // the most hedges of one call, at least 1
	MinDelay time.Duration // the least delay
	Price    float64       // what a plan must gain per extra attempt
}

// Plan is a choice and what it promises.
type Plan struct {
	Delay       time.Duration // of the first hedge, and of each further one after the one before
	Probability float64       // with which each hedge that is due is sent
	Hedges      int           // the most of one call

	Load  float64 // predicted extra attempts a call
	Gain  float64 // predicted fall of the tail, as docs/trigger.md defines it
	Saved float64 // the gain as a share of the tail
	Kept  float64 // share of what was predicted of hedges at this delay that was seen to be saved: 1 is all, or nothing is known
}

const (
	coarse    = 32 // delays are tried first; around the best of them each one is
	maxHedges = 4  // of a plan, as gRPC bounds the attempts of a call
	grid      = 4  // buckets between the times at which a survival function is looked at
)

const (
	rarest = 1e-3 // share of calls beyond which a tail is of no interest: the 99.9th percentile
	// beyond is how many times longer a call is taken to last that was cut short at the largest bound, where a deadline ends calls.
	beyond = 4
)

// size returns the size of the tail from the median to p99.9, by the share of calls at some time: on a logarithmic scale, from 0 for
// the rarest calls to 1 for half of them.
func size(share float64) float64 {
	return max(math.Log(share/rarest), 0) / math.Log(0.5/rarest)
}

// Find returns the best plan. It is false if none exists: nothing was observed, or no hedge may be sent, or none before ten
// minutes. It takes up to 300 µs, whatever was recorded.
func Find(p Problem) (Plan, bool) {
	last := sketch.UpperEdge(sketch.Buckets - 1)
	if p.Primary == nil || p.Hedge == nil || p.Hedges < 1 || !(p.Load > 0) || p.MinDelay > last {
		return Plan{}, false
	}
	s := p.search()
	buckets := s.candidates()
	stride := max(len(buckets)/coarse, 1)
	best := -1
	for i := 0; i < len(buckets); i += stride {
		if s.try(buckets[i]) {
			best = i
		}
	}
	for i, middle := max(best-stride+1, 0), best; i < min(middle+stride, len(buckets)); i++ {
		s.try(buckets[i])
	}
	return s.predict(s.best), true
}

// Predict returns the plan with what its delay, probability and number of hedges promise. They need not keep to the load and
// the bounds of the problem, whose Primary and Hedge must not be nil.
func (p Problem) Predict(plan Plan) Plan { return p.search().predict(plan) }

// Percentile returns the predicted percentile, as a quantile, of calls under a plan; of calls that are not hedged under the
// zero Plan.
func (p Problem) Percentile(plan Plan, q float64) time.Duration {
	s := p.search()
	plan.Kept = s.kept(plan.Delay)
	beyond, low, high := 1-q, -1, s.Primary.Last()
	at := func(bucket int) float64 {
		return s.unanswered(plan, sketch.UpperEdge(bucket), s.Primary.Beyond(bucket))
	}
	for high-low > 1 {
		if middle := (low + high) / 2; at(middle) > beyond {
			low = middle
		} else {
			high = middle
		}
	}
	upper := sketch.UpperEdge(high)
	if low < 0 {
		return upper
	}
	lower, before, after := sketch.UpperEdge(low), at(low), at(high)
	return lower + time.Duration(float64(upper-lower)*(before-beyond)/(before-after))
}

// Tail returns the percentile, as a quantile, of calls that are not hedged.
func Tail(primary *sketch.Survival, q float64) time.Duration {
	return Problem{Primary: primary}.Percentile(Plan{}, q)
}

type search struct {
	Problem
	points   []point // beyond the median
	unhedged float64 // the tail of calls that are not hedged
	outcomes []observed

	best  Plan
	value float64 // of the best
}

// point is a time, the share of primaries that take longer, and the logarithm of the factor of time that it stands for.
type point struct {
	at    time.Duration
	share float64
	width float64
}

func (p Problem) search() *search {
	s := &search{Problem: p, value: math.Inf(-1)}
	median := 0
	for median < p.Primary.Last() && p.Primary.Beyond(median) > 0.5 {
		median++
	}
	before := sketch.UpperEdge(median)
	for b := median + grid; b < p.Primary.Last()+grid; b += grid {
		b := min(b, p.Primary.Last())
		middle, edge := (before+sketch.UpperEdge(b))/2, sketch.UpperEdge(b)
		if share := p.Primary.At(middle); share > rarest {
			s.points = append(s.points, point{middle, share, math.Log(float64(edge) / float64(before))})
		}
		before = edge
	}
	if left := p.Primary.Left(); left > rarest {
		s.points = append(s.points, point{before, left, math.Log(beyond)})
	}
	s.unhedged = s.tail(Plan{})
	s.observe()
	return s
}

// tail is the area under the latency-by-percentile curve of calls under a plan, both axes logarithmic: how many times their median the
// slower half of calls take, as a logarithm, on average over the percentiles.
func (s *search) tail(plan Plan) (area float64) {
	for _, p := range s.points {
		area += p.width * size(s.unanswered(plan, p.at, p.share))
	}
	return area
}

// candidates are the buckets whose upper edge is worth a try as a delay: those in which calls end, for where none does a
// shorter delay is as cheap and better. Beyond the last of them nothing was seen, so that a hedge costs nothing.
func (s *search) candidates() []int {
	floor := sketch.Bucket(max(s.MinDelay, 1))
	buckets := []int{floor}
	before := s.Primary.Beyond(floor)
	for b := floor + 1; b <= s.Primary.Last(); b++ {
		beyond := s.Primary.Beyond(b)
		if beyond < before && beyond < 0.97 {
			buckets = append(buckets, b)
		}
		before = beyond
	}
	return buckets
}

// try tries the plans with a delay at the upper edge of a bucket, one for each number of hedges, and reports whether one of
// them is the best so far.
func (s *search) try(bucket int) (better bool) {
	delay := max(sketch.UpperEdge(bucket), s.MinDelay)
	for hedges := 1; hedges <= s.Hedges; hedges++ {
		plan := Plan{Delay: delay, Hedges: hedges, Kept: s.kept(delay)}
		plan.Probability, plan.Load = s.fit(delay, hedges)
		plan = s.gains(plan)
		if value := s.worth(plan); value > s.value || value == s.value && value <= 0 {
			s.best, s.value, better = plan, value, true
		}
	}
	return better
}

// worth is what a plan gains, less the price of its load.
func (s *search) worth(p Plan) float64 { return p.Gain - s.Price*p.Load }

// gains returns a plan with what it gains.
func (s *search) gains(plan Plan) Plan {
	if plan.Gain = s.unhedged - s.tail(plan); s.unhedged > 0 {
		plan.Saved = plan.Gain / s.unhedged
	}
	return plan
}

// fit returns the greatest probability whose load is within the bounds, and that load.
func (s *search) fit(delay time.Duration, hedges int) (probability, load float64) {
	at := s.loadAt(delay, hedges)
	if load = at(1); load <= s.Load {
		return 1, load
	}
	const parts = 1 << 14
	probability = float64(sort.Search(parts, func(part int) bool { return at(float64(part+1)/parts) > s.Load })) / parts
	return probability, at(probability)
}

// loadAt returns the extra load of a delay and a number of hedges as a function of the probability.
func (s *search) loadAt(delay time.Duration, hedges int) func(q float64) float64 {
	var due, answered [maxHedges + 1]float64 // S_X(k·d) and F_Y(k·d)
	for k := 1; k <= hedges; k++ {
		due[k] = dueAt(s.Primary, delay, k)
		answered[k] = 1 - s.Hedge.At(time.Duration(k)*delay)
	}
	return func(q float64) float64 {
		sum, unanswered := 0.0, 1.0 // by the hedges so far
		for k := 1; k <= hedges; k++ {
			sum += q * due[k] * unanswered
			unanswered *= 1 - q*answered[k]
		}
		return sum
	}
}

// dueAt is S_X(k·d): exact for the first hedge, whose delay is the edge of a bucket.
func dueAt(primary *sketch.Survival, delay time.Duration, k int) float64 {
	if k == 1 {
		return primary.Beyond(sketch.Bucket(delay - 1))
	}
	return primary.At(time.Duration(k) * delay)
}

// unanswered is the probability that a call under a plan takes longer than t, if a primary does with the one given.
func (s *search) unanswered(plan Plan, t time.Duration, primary float64) float64 {
	if plan.Hedges == 0 || t <= plan.Delay || primary == 0 {
		return primary
	}
	left := 1.0
	for k := 1; k <= plan.Hedges && time.Duration(k)*plan.Delay < t; k++ {
		left *= 1 - plan.Probability*(1-s.Hedge.At(t-time.Duration(k)*plan.Delay))
	}
	return primary * (1 - plan.Kept*(1-left))
}

func (s *search) predict(plan Plan) Plan {
	plan.Kept = s.kept(plan.Delay)
	plan.Load = s.loadAt(plan.Delay, plan.Hedges)(plan.Probability)
	return s.gains(plan)
}
