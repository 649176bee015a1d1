// Package knee computes when to hedge: the delay, the probability and the number of hedges that give calls the best
// tail which a budget can buy, from what is known of the latencies of primaries and of hedges.
//
// The model, its formulas and sources, and where it is wrong are in docs/trigger.md. With one hedge a plan is the policy SingleR of
// Kaler, He and Elnikety (SPAA 2017). Further hedges are there for the percentiles beyond. Where attempts depend on each other,
// [Outcome] corrects the prediction by what hedged calls took.
package knee

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/grpchedge/hedge/sketch"
)

// Problem is what a choice is made from.
type Problem struct {
	Primary *sketch.Survival // of primaries
	Hedge   *sketch.Survival // of hedges, from when they are sent
	Calls   float64          // that Primary was estimated from

	// Outcomes is what became of hedged calls, in no order; empty if nothing is known.
	Outcomes []Outcome
	// Skeptical expects nothing of hedges but what was observed: at a delay with too few outcomes they are of no use.
	Skeptical bool

	Target   float64       // the percentile to make small, as a quantile: 0 < Target < 1
	Load     float64       // the most extra attempts a call, on average
	Hedges   int           // the most hedges of one call, at least 1
	MinDelay time.Duration // the least delay
}

// Plan is a choice and what it promises.
type Plan struct {
	Delay       time.Duration // of the first hedge, and of each further one after the one before
	Probability float64       // with which each hedge that is due is sent
	Hedges      int           // the most of one call

	Tail     time.Duration // predicted target percentile of calls
	FarTail  time.Duration // predicted percentile ten times as far out
	Load     float64       // predicted extra attempts a call
	WinShare float64       // predicted share of hedged calls that a hedge answers, were hedges as fast as primaries
}

const (
	nearlyBestTail = 1.03 // near-ties of the target percentile are decided by the one further out,
	nearlyBest     = 1.01 // and those of either by the load
	further        = 10   // times rarer the calls are that the percentile further out is about: p99.9 for p99
	coarse         = 32   // delays are tried first; around the best of them each one is
	maxHedges      = 4    // of a plan, as gRPC bounds the attempts of a call
	// A further hedge may cost so much more load, for the percentiles beyond those that are looked at: a request that makes a
	// hundred calls is as slow as the slowest of them.
	nextToNothing = 1.1
	// Plans are compared a little further out than at the percentile: one that is only just met is lost to chance.
	marginTail, marginFar = 0.9, 0.5
	// So many calls that never end are added to those observed, primaries and hedges alike: the slowest of few calls say nothing
	// about the percentiles beyond. A plan that could not cope with them is judged by that, every other by what was seen.
	unseen = 2
)

// Find returns the best plan. It is false if none exists: nothing was observed, or no hedge may be sent, or none before ten
// minutes. It takes up to 300 µs, whatever was recorded.
func Find(p Problem) (Plan, bool) {
	if p.Primary == nil || p.Hedge == nil || p.Hedges < 1 || !(p.Load > 0) || p.MinDelay > sketch.UpperEdge(sketch.Buckets-1) {
		return Plan{}, false
	}
	s := p.search()
	s.unseen = unseen / (unseen + p.Calls)
	buckets := s.candidates()
	stride := max(len(buckets)/coarse, 1)
	for i := 0; i < len(buckets); i += stride {
		s.try(buckets[i])
	}
	middle, _ := slices.BinarySearch(buckets, sketch.Bucket(s.best().Delay-1))
	for i := max(middle-stride+1, 0); i < min(middle+stride, len(buckets)); i++ {
		s.try(buckets[i])
	}
	s.unseen = 0
	return s.predict(s.best()), true
}

// Predict returns the plan with what its delay, probability and number of hedges promise. They need not keep to the load and
// the bounds of the problem, whose Primary and Hedge must not be nil.
func (p Problem) Predict(plan Plan) Plan { return p.search().predict(plan) }

// Percentile returns the predicted percentile, as a quantile, of calls under a plan.
func (p Problem) Percentile(plan Plan, q float64) time.Duration {
	s := p.search()
	return s.percentile(s.outlook(plan), 1-q)
}

// Tail returns the percentile, as a quantile, of calls that are not hedged.
func Tail(primary *sketch.Survival, q float64) time.Duration {
	return Problem{Primary: primary}.search().percentile(outlook{}, 1-q)
}

// FarTail returns the percentile of calls that are not hedged which lies beyond the target as far as [Plan.FarTail] does.
func FarTail(primary *sketch.Survival, target float64) time.Duration {
	return Tail(primary, 1-(1-target)/further)
}

// WinShare returns the probability that a hedge, as fast as a primary, answers before a primary that has not by the delay.
func WinShare(primary *sketch.Survival, delay time.Duration) float64 {
	due := dueAt(primary, delay, 1)
	if due <= 0 {
		return 0
	}
	share, before := 0.0, 1.0
	for bucket := 0; bucket <= primary.Last(); bucket++ {
		after := primary.Beyond(bucket)
		if mass := before - after; mass > 0 {
			share += mass * primary.At(delay+sketch.UpperEdge(bucket)) / due
		}
		before = after
	}
	return min(share, 1)
}

type search struct {
	Problem
	unseen   float64 // share of calls that never end
	outcomes []observed
	tried    []Plan // with the percentiles that they are judged by
}

// candidates are the buckets whose upper edge is worth a try as a delay: those in which calls end, for where none does a
// shorter delay is as cheap and better. They go from the fastest calls to those beyond which fewer remain than half of
// what the target leaves out.
func (s *search) candidates() []int {
	floor := sketch.Bucket(max(s.MinDelay, 1))
	buckets := []int{floor}
	before := s.Primary.Beyond(floor)
	for b := floor + 1; b <= s.Primary.Last(); b++ {
		beyond := s.Primary.Beyond(b)
		if beyond < (1-s.Target)/2 {
			break
		}
		if beyond < before && beyond < 0.97 {
			buckets = append(buckets, b)
		}
		before = beyond
	}
	return buckets
}

// try adds the plans with a delay at the upper edge of a bucket, one for each number of hedges.
func (s *search) try(bucket int) {
	delay := max(sketch.UpperEdge(bucket), s.MinDelay)
	for hedges := 1; hedges <= s.Hedges; hedges++ {
		plan := Plan{Delay: delay, Hedges: hedges}
		plan.Probability, plan.Load = s.fit(delay, hedges)
		o := s.outlook(plan)
		plan.Tail, plan.FarTail = s.percentile(o, marginTail*(1-s.Target)), s.percentile(o, marginFar*(1-s.Target)/further)
		s.tried = append(s.tried, plan)
	}
}

// best returns what the order of aims prefers among the plans tried.
func (s *search) best() Plan {
	tail := func(p Plan) float64 { return float64(p.Tail) }
	kept := nearlyLeast(s.tried, nearlyBestTail, tail)
	kept = nearlyLeast(kept, nearlyBest, func(p Plan) float64 { return float64(p.FarTail) })
	kept = nearlyLeast(kept, nearlyBest, tail)
	best := slices.MinFunc(kept, func(a, b Plan) int { return cmp.Compare(a.Load, b.Load) })
	for _, p := range kept {
		if p.Delay == best.Delay && p.Hedges > best.Hedges && p.Load <= nextToNothing*best.Load {
			best = p
		}
	}
	return best
}

// nearlyLeast returns the plans whose value is at most a factor from the least.
func nearlyLeast(plans []Plan, factor float64, value func(Plan) float64) []Plan {
	least := value(slices.MinFunc(plans, func(a, b Plan) int { return cmp.Compare(value(a), value(b)) }))
	return slices.DeleteFunc(slices.Clone(plans), func(p Plan) bool { return value(p) > factor*least })
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

// percentile returns what a share beyond of the calls under a plan takes longer than, interpolated within its bucket.
func (s *search) percentile(plan outlook, beyond float64) time.Duration {
	// The survival function is above it at low's upper edge and not at high's. The last hedge of a call may answer as late as
	// the slowest primary, from when it is sent.
	low, high := -1, sketch.Bucket(sketch.UpperEdge(s.Primary.Last())+time.Duration(plan.Hedges)*plan.Delay)
	if rest := s.unanswered(plan, high, s.unseen); rest > beyond {
		// It might never fall so far. Worse than anything that was seen, and the worse the more calls it concerns.
		return time.Duration(min(float64(sketch.UpperEdge(high))*(1+rest/beyond), math.MaxInt64/2))
	}
	for high-low > 1 {
		if middle := (low + high) / 2; s.unanswered(plan, middle, 0) > beyond {
			low = middle
		} else {
			high = middle
		}
	}
	upper := sketch.UpperEdge(high)
	if low < 0 {
		return upper
	}
	lower := sketch.UpperEdge(low)
	before, after := s.unanswered(plan, low, 0), s.unanswered(plan, high, 0)
	return lower + time.Duration(float64(upper-lower)*(before-beyond)/(before-after))
}

// unanswered is the probability that a call lasts longer than the upper edge of a bucket, if a share of attempts never ends
// beside those that were seen.
func (s *search) unanswered(plan outlook, bucket int, unseen float64) float64 {
	survival := unseen + (1-unseen)*s.Primary.Beyond(bucket)
	t := sketch.UpperEdge(bucket)
	rest := t - plan.Delay
	if plan.Hedges == 0 || rest <= 0 || s.Skeptical && plan.observed == nil {
		return survival
	}
	for k := 2; k <= plan.Hedges && time.Duration(k)*plan.Delay < t; k++ {
		survival *= 1 - plan.Probability*(1-unseen)*(1-s.Hedge.At(t-time.Duration(k)*plan.Delay))
	}
	first := (1 - unseen) * (1 - s.Hedge.At(rest))
	hedged := survival * (1 - first)
	if of := plan.observed; of != nil && of.weight > 0 {
		hedged = max(0, hedged+plan.due*s.surprise(of, rest))
	}
	return (1-plan.Probability)*survival + plan.Probability*hedged
}

func (s *search) predict(plan Plan) Plan {
	o := s.outlook(plan)
	plan.Load = s.loadAt(plan.Delay, plan.Hedges)(plan.Probability)
	plan.Tail = s.percentile(o, 1-s.Target)
	plan.FarTail = s.percentile(o, (1-s.Target)/further)
	plan.WinShare = WinShare(s.Primary, plan.Delay)
	return plan
}
