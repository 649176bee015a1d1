package trigger

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/sketch"
)

// Problem is the input of a choice.
type Problem struct {
	Primary  *sketch.Survival // of primary latency
	Hedge    *sketch.Survival // of hedge latency, from when a hedge is sent
	Measured []HedgedCalls    // in any order; may be empty

	Load     float64       // bound on the mean extra attempts per call: what the bucket earns
	Others   float64       // extra attempts of the target's other methods, per call
	Tokens   float64       // the most that the bucket can hold and pay
	Hedges   int           // bound on the hedges of one call, at least 1
	MinDelay time.Duration // the least delay
	Latest   time.Duration // hedge k is due at k times this at the latest; 0: no bound
	Price    float64       // gain required per extra attempt
}

// HedgePlan is a choice and its predictions. A call is hedged after Delay with Probability, and
// otherwise at the age Latest of the problem.
type HedgePlan struct {
	Delay       time.Duration // of the first hedge, and between hedges
	Probability float64       // of the first hedge being sent after Delay
	Hedges      int           // bound on the hedges of one call

	Load  float64 // predicted extra attempts per call
	Saved float64 // predicted fall of the tail, as docs/trigger.md defines it, as a share of the tail
}

const (
	coarse = 24 // delays tried first; then each delay around the best of them
	grid   = 4  // buckets between the points at which survival functions are sampled
)

// size maps the share of calls unanswered at some time to its weight in the tail, from the median
// to p99.9, on a logarithmic scale: 0 for a share of rarest, 1 for half of the calls.
func size(share float64) float64 {
	return max(math.Log(share/rarest), 0) / math.Log(0.5/rarest)
}

// Find returns the best plan, or false if none exists: no latency was recorded, or Hedges or Load
// permits no hedge, or MinDelay exceeds ten minutes. It takes up to 1.2 ms, regardless of the
// number of calls. Of equal plans it is the one with more hedges, so that a plan from calm traffic
// sends second hedges once a backend stalls.
func Find(p Problem) (HedgePlan, bool) {
	last := sketch.UpperEdge(sketch.Buckets - 1)
	if p.Primary == nil || p.Hedge == nil || p.Hedges < 1 || !(p.Load > 0) || p.MinDelay > last {
		return HedgePlan{}, false
	}
	if p.Hedges > rpc.MaxHedges {
		panic("trigger: a plan has more hedges than gRPC sends attempts")
	}
	s, best := p.search(), mix{worth: math.Inf(-1)}
	for hedges := 1; hedges <= p.Hedges; hedges++ {
		if m := s.find(hedges); m.worth >= best.worth {
			best = m
		}
	}
	return best.plan, true
}

// find returns the best plan with a number of hedges. It tries a few delays, and then each around
// the best of them.
func (s *search) find(hedges int) mix {
	buckets := s.candidates()
	stride := max(len(buckets)/coarse, 1)
	options := func(from, to, stride int) (few []option) {
		for i := max(from, 0); i < min(to, len(buckets)); i += stride {
			few = append(few, s.option(i, min(max(sketch.UpperEdge(buckets[i]), s.MinDelay), s.Latest), hedges))
		}
		return few
	}
	around := func(o option) []option { return options(o.n-stride+1, o.n+stride, 1) }
	few, latest := options(0, len(buckets), stride), s.option(len(buckets)-1, s.Latest, hedges)
	if latest.delay < Never {
		few = append(few, latest)
	}
	s.most = max(s.Load, latest.load)
	best := s.best(few, latest)
	return s.best(append(around(best.option), best.option), latest)
}

// Never is the delay of calls that are not hedged.
const Never = time.Duration(math.MaxInt64 / 4)

// option is a delay and its effects on calls that are hedged after it.
type option struct {
	n      int // among the candidates
	hedges int
	delay  time.Duration
	load   float64
	hidden []float64 // share of slow primaries, by point, that a hedge has answered for
}

func (s *search) option(n int, delay time.Duration, hedges int) option {
	o := option{n: n, hedges: hedges, delay: delay, load: s.load(delay, hedges), hidden: slices.Clone(s.kept(delay))}
	for i, p := range s.points {
		o.hidden[i] *= s.answered(delay, hedges, p.at)
	}
	return o
}

// paid returns the share of hedges that find a token, if the method sends load extra attempts per
// call: one minus the loss of a queue M/M/1/C, C being the tokens.
func (s *search) paid(load float64) float64 {
	switch rho := (load + s.Others) / s.Load; {
	case math.Abs(rho-1) < 1e-6:
		return s.Tokens / (s.Tokens + 1)
	case rho > 1: // without the overflow of a large power
		return (1 - math.Pow(rho, -s.Tokens)) / (rho - math.Pow(rho, -s.Tokens))
	default:
		return (1 - math.Pow(rho, s.Tokens)) / (1 - math.Pow(rho, s.Tokens+1))
	}
}

// Percentile returns the predicted percentile, as a quantile, of calls under a plan.
func (p Problem) Percentile(plan HedgePlan, q float64) time.Duration {
	s := p.search()
	paid, early, late := s.paid(plan.Load), s.kept(plan.Delay), s.kept(s.Latest)
	return percentile(q, p.Primary.Last, func(bucket int) float64 {
		t, hidden := sketch.UpperEdge(bucket), 0.0
		byTime := func(p slowPoint, t time.Duration) int { return cmp.Compare(p.at, t) }
		if i, _ := slices.BinarySearchFunc(s.points, t, byTime); i > 0 {
			hidden = plan.Probability*early[i-1]*s.answered(plan.Delay, plan.Hedges, t) +
				(1-plan.Probability)*late[i-1]*s.answered(s.Latest, plan.Hedges, t)
		}
		return p.Primary.Beyond(bucket) * (1 - paid*hidden)
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
	points   []slowPoint // beyond the median
	unhedged float64     // tail of unhedged calls
	most     float64     // the most load of a plan: Load, or more if Latest costs more
	observed []observed
	shares   map[time.Duration][]float64 // see kept
}

// slowPoint is a time, the share of primaries slower than it, and its width: the logarithm of the ratio
// of the interval's ends.
type slowPoint struct {
	at    time.Duration
	share float64
	width float64
}

func (p Problem) search() *search {
	s := &search{Problem: p, points: p.points(), shares: map[time.Duration][]float64{}}
	s.Latest = cmp.Or(s.Latest, Never)
	for _, p := range s.points {
		s.unhedged += p.width * size(p.share)
	}
	s.observe()
	return s
}

// points returns the times beyond the median at which latencies are compared.
func (p Problem) points() (points []slowPoint) {
	median := 0 // of primaries or of hedges, whichever are faster
	for median < p.Primary.Last && min(p.Primary.Beyond(median), p.Hedge.Beyond(median)) > 0.5 {
		median++
	}
	before := sketch.UpperEdge(median)
	for b := median + grid; b < p.Primary.Last+grid; b += grid {
		b := min(b, p.Primary.Last)
		middle, edge := (before+sketch.UpperEdge(b))/2, sketch.UpperEdge(b)
		if share := p.Primary.At(middle); share > rarest {
			points = append(points, slowPoint{middle, share, math.Log(float64(edge) / float64(before))})
		}
		before = edge
	}
	if left := p.Primary.Left; left > rarest {
		points = append(points, slowPoint{before, left, math.Log(deadlineFactor)})
	}
	return points
}

// candidates returns the buckets with an upper edge worth trying as a delay: the buckets in which
// calls end. Elsewhere a shorter delay has the same cost and a higher gain. No call was seen beyond
// the last bucket, so a hedge there costs nothing.
func (s *search) candidates() []int {
	floor := sketch.Bucket(max(s.MinDelay, 1))
	buckets := []int{floor}
	before := s.Primary.Beyond(floor)
	for b := floor + 1; b <= s.Primary.Last && sketch.UpperEdge(b) < s.Latest; b++ {
		beyond := s.Primary.Beyond(b)
		if beyond < before && beyond < 0.97 {
			buckets = append(buckets, b)
		}
		before = beyond
	}
	return buckets
}

// mix is a plan, its delay, and its worth.
type mix struct {
	plan   HedgePlan
	option option
	worth  float64
}

// best returns the best plan with one of the options. All calls are hedged after its delay, or as many
// as the load permits. The others are hedged at the latest age. As the gain is convex in the share of
// calls, no other share is better.
func (s *search) best(options []option, latest option) mix {
	best := mix{worth: math.Inf(-1)}
	for _, o := range options {
		q := 1.0
		if o.load > s.most {
			q = (s.most - latest.load) / (o.load - latest.load)
		}
		if m := s.mix(o, latest, q); m.worth > best.worth || m.worth == best.worth && m.worth <= 0 {
			best = m
		}
	}
	return best
}

// mix returns the plan that hedges by option o with probability q.
func (s *search) mix(o, latest option, q float64) mix {
	plan := HedgePlan{Delay: o.delay, Probability: q, Hedges: o.hedges, Load: q*o.load + (1-q)*latest.load}
	area := 0.0
	for i, p := range s.points {
		area += p.width * size(p.share*(1-q*o.hidden[i]-(1-q)*latest.hidden[i]))
	}
	gain := max(s.unhedged-area, 0)
	if s.unhedged > 0 {
		plan.Saved = gain / s.unhedged
	}
	return mix{plan, o, s.paid(plan.Load)*gain - s.Price*plan.Load}
}

// load returns the extra attempts per call if all calls are hedged after a delay.
func (s *search) load(delay time.Duration, hedges int) (sum float64) {
	for k := 1; k <= s.Hedges && s.due(delay, hedges, k) < Never; k++ {
		at := s.due(delay, hedges, k)
		due := s.Primary.At(at)
		if k == 1 && delay != s.Latest { // exact, as the delay is the edge of a bucket
			due = s.Primary.Beyond(sketch.Bucket(at - 1))
		}
		sum += due * (1 - s.answered(delay, hedges, at))
	}
	return sum
}

// answered returns the probability that one of a call's hedges has answered at the age t, if hedges
// are independent of their primaries.
func (s *search) answered(delay time.Duration, hedges int, t time.Duration) float64 {
	left := 1.0
	for k := 1; k <= s.Hedges && s.due(delay, hedges, k) < t; k++ {
		left *= s.Hedge.At(t - s.due(delay, hedges, k))
	}
	return 1 - left
}

// due returns the age at which hedge k is due; Never or more if the plan has no such hedge.
func (s *search) due(delay time.Duration, hedges, k int) time.Duration {
	if k > hedges {
		delay = max(delay, s.Latest)
	}
	return time.Duration(k) * delay
}
