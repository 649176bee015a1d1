package trigger

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// Problem is the input of a choice.
type Problem struct {
	Primary  *sketch.Survival // of primary latency
	Hedge    *sketch.Survival // of hedge latency, from when a hedge is sent
	Measured []HedgedCalls    // in any order; may be empty

	Load     float64       // bound on the mean extra attempts per call
	Hedges   int           // bound on the hedges of one call, at least 1
	MinDelay time.Duration // the least delay
	Price    float64       // gain required per extra attempt
}

// HedgePlan is a choice and its predictions.
type HedgePlan struct {
	Delay       time.Duration // of the first hedge, and between hedges
	Probability float64       // of sending each hedge that is due
	Hedges      int           // bound on the hedges of one call

	Load  float64 // predicted extra attempts per call
	Saved float64 // predicted fall of the tail, as docs/trigger.md defines it, as a share of the tail
	Kept  float64 // measured / predicted savings of hedges at this delay, 0 to 1; 1 without measurements
}

const (
	coarse    = 32 // delays tried first; then each delay around the best of them
	maxHedges = 4  // of a plan: gRPC's bound on attempts
	grid      = 4  // buckets between the points at which survival functions are sampled
)

// size maps the share of calls unanswered at some time to its weight in the tail, from the median
// to p99.9, on a logarithmic scale: 0 for a share of rarest, 1 for half of the calls.
func size(share float64) float64 {
	return max(math.Log(share/rarest), 0) / math.Log(0.5/rarest)
}

// Find returns the best plan, or false if none exists: no latency was recorded, or Hedges or Load
// permits no hedge, or MinDelay exceeds ten minutes. It takes up to 1.2 ms, regardless of the
// number of calls.
func Find(p Problem) (HedgePlan, bool) {
	last := sketch.UpperEdge(sketch.Buckets - 1)
	if p.Primary == nil || p.Hedge == nil || p.Hedges < 1 || !(p.Load > 0) || p.MinDelay > last {
		return HedgePlan{}, false
	}
	if p.Hedges > maxHedges {
		panic("trigger: a plan has more hedges than gRPC sends attempts")
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
	return s.best, true
}

// Percentile returns the predicted percentile, as a quantile, of calls under a plan.
func (p Problem) Percentile(plan HedgePlan, q float64) time.Duration {
	s := p.search()
	plan.Kept = s.kept(plan.Delay)
	return percentile(q, p.Primary.Last, func(bucket int) float64 {
		return s.unanswered(plan, sketch.UpperEdge(bucket), p.Primary.Beyond(bucket))
	})
}

// Tail returns the percentile, as a quantile, of unhedged calls; 0 if no call was answered.
func Tail(primary *sketch.Survival, q float64) time.Duration {
	if primary == nil {
		return 0
	}
	return percentile(q, primary.Last, primary.Beyond)
}

// percentile interpolates in the bucket that holds the percentile. beyond returns the share of calls
// beyond a bucket; last is the last bucket with a call.
func percentile(q float64, last int, beyond func(bucket int) float64) time.Duration {
	low, high := -1, last
	for high-low > 1 {
		if middle := (low + high) / 2; beyond(middle) > 1-q {
			low = middle
		} else {
			high = middle
		}
	}
	upper := sketch.UpperEdge(high)
	if low < 0 {
		return upper
	}
	lower, before, after := sketch.UpperEdge(low), beyond(low), beyond(high)
	return lower + time.Duration(float64(upper-lower)*(before-(1-q))/(before-after))
}

type search struct {
	Problem
	points   []point // beyond the median
	unhedged float64 // tail of unhedged calls
	observed []observed

	best  HedgePlan
	worth float64 // of the best
}

// point is a time, the share of primaries slower than it, and its width: the logarithm of the ratio
// of the interval's ends.
type point struct {
	at    time.Duration
	share float64
	width float64
}

func (p Problem) search() *search {
	s := &search{Problem: p, worth: math.Inf(-1)}
	median := 0
	for median < p.Primary.Last && p.Primary.Beyond(median) > 0.5 {
		median++
	}
	before := sketch.UpperEdge(median)
	for b := median + grid; b < p.Primary.Last+grid; b += grid {
		b := min(b, p.Primary.Last)
		middle, edge := (before+sketch.UpperEdge(b))/2, sketch.UpperEdge(b)
		if share := p.Primary.At(middle); share > rarest {
			s.points = append(s.points, point{middle, share, math.Log(float64(edge) / float64(before))})
		}
		before = edge
	}
	if left := p.Primary.Left; left > rarest {
		s.points = append(s.points, point{before, left, math.Log(beyond)})
	}
	s.unhedged = s.tail(HedgePlan{})
	s.observe()
	return s
}

// tail returns the area under the latency-by-percentile curve of calls under a plan, both axes
// logarithmic: the mean logarithm, over the percentiles, of the latency of the slower half of calls
// as a multiple of the median.
func (s *search) tail(plan HedgePlan) (area float64) {
	for _, p := range s.points {
		area += p.width * size(s.unanswered(plan, p.at, p.share))
	}
	return area
}

// candidates returns the buckets with an upper edge worth trying as a delay: the buckets in which
// calls end. Elsewhere a shorter delay has the same cost and a higher gain. No call was seen beyond
// the last bucket, so a hedge there costs nothing.
func (s *search) candidates() []int {
	floor := sketch.Bucket(max(s.MinDelay, 1))
	buckets := []int{floor}
	before := s.Primary.Beyond(floor)
	for b := floor + 1; b <= s.Primary.Last; b++ {
		beyond := s.Primary.Beyond(b)
		if beyond < before && beyond < 0.97 {
			buckets = append(buckets, b)
		}
		before = beyond
	}
	return buckets
}

// try evaluates the plans with a delay at the upper edge of a bucket, one for each number of
// hedges, and reports whether it found a new best plan.
func (s *search) try(bucket int) (better bool) {
	delay := max(sketch.UpperEdge(bucket), s.MinDelay)
	for hedges := 1; hedges <= s.Hedges; hedges++ {
		plan := s.fit(HedgePlan{Delay: delay, Probability: 1, Hedges: hedges, Kept: s.kept(delay)})
		plan, worth := s.weigh(plan)
		if worth > s.worth || worth == s.worth && worth <= 0 {
			s.best, s.worth, better = plan, worth, true
		}
	}
	return better
}

func (s *search) weigh(plan HedgePlan) (weighed HedgePlan, worth float64) {
	gain := s.unhedged - s.tail(plan)
	if s.unhedged > 0 {
		plan.Saved = gain / s.unhedged
	}
	return plan, gain - s.Price*plan.Load
}

// fit returns plan with the greatest probability whose load is within the bound, to a thousandth, and
// that load. The probability converges from above: load per probability rises as the probability
// falls.
func (s *search) fit(plan HedgePlan) HedgePlan {
	for plan.Load = s.load(plan); plan.Load > s.Load*1.001; plan.Load = s.load(plan) {
		plan.Probability *= s.Load / plan.Load
	}
	plan.Load = min(plan.Load, s.Load)
	return plan
}

// load returns the extra attempts per call of a plan.
func (s *search) load(plan HedgePlan) (sum float64) {
	for k := 1; k <= plan.Hedges; k++ {
		at := time.Duration(k) * plan.Delay
		due := s.Primary.At(at)
		if k == 1 { // exact, as the delay is the edge of a bucket
			due = s.Primary.Beyond(sketch.Bucket(at - 1))
		}
		sum += plan.Probability * due * (1 - s.answered(plan, at))
	}
	return sum
}

// unanswered returns the probability that the latency of a call under a plan exceeds t. primary is
// the same probability for its primary.
func (s *search) unanswered(plan HedgePlan, t time.Duration, primary float64) float64 {
	if plan.Hedges == 0 || t <= plan.Delay || primary == 0 {
		return primary
	}
	return primary * (1 - plan.Kept*s.answered(plan, t))
}

// answered returns the probability that one of a plan's hedges has answered at the age t, if hedges
// are independent of their primaries.
func (s *search) answered(plan HedgePlan, t time.Duration) float64 {
	left := 1.0
	for k := 1; k <= plan.Hedges && time.Duration(k)*plan.Delay < t; k++ {
		left *= 1 - plan.Probability*(1-s.Hedge.At(t-time.Duration(k)*plan.Delay))
	}
	return 1 - left
}
