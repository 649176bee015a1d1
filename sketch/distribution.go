package sketch

import (
	"sort"
	"time"
)

// Distribution is what a [Window] held at one moment. It never changes, and may be used concurrently.
//
// It estimates the survival function S(t), the probability that a call takes longer than t, from answers and lower bounds
// together, by the product-limit method (Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations",
// JASA 1958). Going up through the buckets, with
//
//	n  calls neither answered nor cut short below the bucket,
//	o  of them answered in it, and
//	c  of them cut short in it,
//
// each bucket multiplies S by 1 − o/(n − c/2). This is the actuaries' convention for life tables: a call cut short within
// a bucket was at risk for half of it. S is 1 below the first answer.
//
// That is right as long as cutting a call short has nothing to do with how much longer it would have taken. It is so for
// deadlines, for callers that leave, and for a hedge that won because another server was faster. It is less so where a
// request is slow on every server: its hedge wins late or not at all. And it takes calls that got that far to learn of the
// far tail, which are few where most of the slow ones are cut short.
type Distribution struct {
	observed, bounded int64

	curve      []point // ascending
	ended      []point // likewise, with lower bounds taken for answers
	lastBucket int     // the highest in which anything was counted
}

// point is the survival function beyond one bucket, in which something was observed.
type point struct {
	bucket   int
	survival float64
}

// Count returns how many calls were observed, and of how many a lower bound is known.
func (d *Distribution) Count() (observed, bounded int64) {
	return d.observed, d.bounded
}

// Total returns how many calls it was made from, those of which only a lower bound is known among them.
func (d *Distribution) Total() int64 { return d.observed + d.bounded }

// Quantile returns the latency that a share q of calls does not exceed, within 1%, and rounded to nanoseconds. Without
// lower bounds it is the one of rank ⌈q·observed⌉.
//
// If S never falls to 1−q, because all of the slower calls were cut short, it is the largest bound, and the true quantile
// is at least that. It is false if nothing was observed, and for a q that is not between 0 and 1, both excluded.
func (d *Distribution) Quantile(q float64) (time.Duration, bool) {
	if d.observed == 0 || !(0 < q && q < 1) {
		return 0, false
	}
	return d.quantile(d.curve, q), true
}

// Ended returns the quantile q of the times at which calls ended, answered or cut short. Where a call is cut short because
// a hedge answered it, that is how long its caller waited. It is false if nothing was recorded, and for a q that is not
// between 0 and 1, both excluded.
func (d *Distribution) Ended(q float64) (time.Duration, bool) {
	if len(d.ended) == 0 || !(0 < q && q < 1) {
		return 0, false
	}
	return d.quantile(d.ended, q), true
}

// Mean returns the mean latency, 0 if nothing was observed. Where the slowest calls were cut short, they are taken to have ended
// at the largest bound.
func (d *Distribution) Mean() time.Duration {
	if len(d.curve) == 0 {
		return 0
	}
	mean, left := 0.0, 1.0
	for _, p := range d.curve {
		mean += (left - p.survival) * float64(latencyOf(p.bucket))
		left = p.survival
	}
	return time.Duration(mean + left*float64(latencyOf(d.lastBucket)))
}

func (d *Distribution) quantile(curve []point, q float64) time.Duration {
	// S is a product of up to a thousand factors: rounding must not take it past a rank that it meets exactly.
	const rounding = 1e-9
	beyond := (1 - q) * (1 + rounding)
	i := sort.Search(len(curve), func(i int) bool { return curve[i].survival <= beyond })
	if i == len(curve) {
		return latencyOf(d.lastBucket)
	}
	return latencyOf(curve[i].bucket)
}

// tally adds up the counts of several slots.
type tally struct {
	observed, bounded [buckets]int64
}

func (t *tally) distribution() *Distribution {
	d := &Distribution{}
	answers, ends := 0, 0
	for i, o := range t.observed {
		d.observed += o
		d.bounded += t.bounded[i]
		if o > 0 {
			answers++
		}
		if o > 0 || t.bounded[i] > 0 {
			ends++
			d.lastBucket = i
		}
	}
	points := make([]point, answers+ends)
	d.curve, d.ended = points[:0:answers], points[answers:answers]
	n, survival := d.observed+d.bounded, 1.0
	all := float64(n)
	for i, o := range t.observed {
		c := t.bounded[i]
		if o > 0 {
			survival *= 1 - float64(o)/(float64(n)-float64(c)/2)
			d.curve = append(d.curve, point{i, survival})
		}
		n -= o + c
		if o > 0 || c > 0 {
			d.ended = append(d.ended, point{i, float64(n) / all})
		}
	}
	return d
}
