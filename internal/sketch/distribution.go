package sketch

import (
	"math"
	"slices"
	"sort"
	"time"
)

// Distribution is an immutable snapshot of a [Window]. It is safe for concurrent use.
//
// It estimates the survival function S(t), the probability that a call takes longer than t, from
// answers and lower bounds, by the product-limit method (Kaplan and Meier, "Nonparametric
// Estimation from Incomplete Observations", JASA 1958). In ascending order, each bucket multiplies S
// by 1 − o/(n − c/2), where n is the number of calls that did not end below the bucket, o the number
// answered in it and c the number cut short in it, which were at risk for half of it.
//
// The estimate is unbiased if the decision to cut a call short is independent of its remaining
// latency. A request that is slow on every server violates this.
type Distribution struct {
	observed, bounded int64
	points            []point // ascending
}

// point is a bucket in which at least one call ended.
type point struct {
	bucket        int32
	answered, cut float32 // calls
	survival      float64 // S beyond the bucket
	left          float64 // share of calls that ended later
}

// Count returns the number of answered calls and the number of calls with only a lower bound.
func (d *Distribution) Count() (observed, bounded int64) { return d.observed, d.bounded }

// Total includes calls with only a lower bound.
func (d *Distribution) Total() int64 { return d.observed + d.bounded }

// Quantile returns the latency that a share q of calls does not exceed, within 1%: see the public
// package. Without lower bounds it is the latency of rank ⌈q·observed⌉.
func (d *Distribution) Quantile(q float64) (time.Duration, bool) {
	return d.quantile(q, d.observed > 0, func(p point) float64 { return p.survival })
}

// Longest returns the longest latency of an answered call, within 1%; 0 if no call was answered.
func (d *Distribution) Longest() time.Duration {
	for _, p := range slices.Backward(d.points) {
		if p.answered > 0 {
			return latencyOf(int(p.bucket))
		}
	}
	return 0
}

// Ended returns the quantile q of the times at which calls ended, answered or cut short. ok is false
// if nothing was recorded, and for q outside (0, 1).
func (d *Distribution) Ended(q float64) (time.Duration, bool) {
	return d.quantile(q, len(d.points) > 0, func(p point) float64 { return p.left })
}

// Beyond returns the share of calls, 0 to 1, with a latency beyond the bucket of t.
func (d *Distribution) Beyond(t time.Duration) float64 {
	bucket := int32(Bucket(t))
	i := sort.Search(len(d.points), func(i int) bool { return d.points[i].bucket > bucket })
	if i == 0 {
		return 1
	}
	return d.points[i-1].survival
}

// CutShort returns the share of calls, 0 to 1, that were cut short before the bucket of t.
func (d *Distribution) CutShort(t time.Duration) (share float64) {
	bucket := int32(Bucket(t))
	for _, p := range d.points {
		if p.bucket < bucket {
			share += float64(p.cut) / float64(d.Total())
		}
	}
	return share
}

func (d *Distribution) quantile(q float64, known bool, of func(point) float64) (time.Duration, bool) {
	if !known || !(0 < q && q < 1) {
		return 0, false
	}
	// S is a product of up to a thousand factors. Rounding must not move it past a rank that it
	// meets exactly.
	const rounding = 1e-9
	beyond := (1 - q) * (1 + rounding)
	i := sort.Search(len(d.points), func(i int) bool { return of(d.points[i]) <= beyond })
	return latencyOf(int(d.points[min(i, len(d.points)-1)].bucket)), true
}

// Mean returns the mean latency, or 0 if no call was answered. Calls cut short beyond the last
// answer count at the largest bound.
func (d *Distribution) Mean() time.Duration {
	sum := 0.0
	for _, c := range d.Counts() {
		sum += float64(c.Calls) * float64(latencyOf(int(c.Bucket)))
	}
	return time.Duration(sum / max(float64(d.Total()), 1))
}

type tally struct {
	answered, cut [Buckets]float64
}

func (t *tally) distribution() *Distribution {
	ends, answered, cut := 0, 0.0, 0.0
	for i, o := range t.answered {
		c := t.cut[i]
		answered, cut = answered+o, cut+c
		if o > 0 || c > 0 {
			ends++
		}
	}
	d := &Distribution{observed: int64(math.Round(answered)), bounded: int64(math.Round(cut)),
		points: make([]point, 0, ends)}
	if answered > 0 {
		d.observed = max(d.observed, 1) // weights need not be whole
	}
	all := answered + cut
	n, survival := all, 1.0
	for i, o := range t.answered {
		c := t.cut[i]
		if o == 0 && c == 0 {
			continue
		}
		survival *= max(1-o/(n-c/2), 0)
		if n -= o + c; survival < 1e-9 {
			survival = 0 // the remainder is a rounding error
		}
		d.points = append(d.points, point{int32(i), float32(o), float32(c), survival, n / all})
	}
	return d
}

// Survival is a survival function S over all buckets. It is immutable.
type Survival struct {
	Last int     // the last bucket that holds a call
	Left float64 // the share of calls beyond the last bucket: all of them were cut short

	beyond [Buckets]float64 // S at the upper edge of each bucket
}

// Survival returns the distribution's survival function, or nil if no call was answered. If S does
// not fall to 0, because the slowest calls were cut short, it falls to 0 at the largest bound.
func (d *Distribution) Survival() *Survival {
	if d.observed == 0 {
		return nil
	}
	end := d.points[len(d.points)-1]
	s := &Survival{Last: int(end.bucket), Left: end.survival}
	beyond, next := 1.0, 0
	for i := range s.Last {
		if int(d.points[next].bucket) == i {
			beyond = d.points[next].survival
			next++
		}
		s.beyond[i] = beyond
	}
	return s
}

// At returns S(t): within a bucket, the mean of its values at the edges.
func (s *Survival) At(t time.Duration) float64 {
	switch i := Bucket(t); {
	case t >= longest:
		return 0
	case t <= shortest:
		return 1
	default:
		return (s.beyond[max(i-1, 0)] + s.beyond[i]) / 2
	}
}

// Beyond returns S at the upper edge of a bucket.
func (s *Survival) Beyond(bucket int) float64 { return s.beyond[bucket] }

// With returns s with other shares beyond the buckets from first to last, and other shares of the calls
// beyond the last bucket.
func (s *Survival) With(first, last int, beyond func(bucket int) float64, left float64) *Survival {
	to := *s
	to.Last, to.Left = last, left
	for b := first; b < last; b++ {
		to.beyond[b] = beyond(b)
	}
	clear(to.beyond[last:])
	return &to
}

// Distance returns the largest excess of slow calls over expected, and the largest deficit. The
// greater of the two is the Kolmogorov-Smirnov statistic.
func Distance(expected, calls *Survival) (slower, faster float64) {
	for i := range Buckets {
		d := calls.Beyond(i) - expected.Beyond(i)
		slower, faster = max(slower, d), max(faster, -d)
	}
	return slower, faster
}
