package sketch

import "time"

// Survival is a survival function S over all buckets: the probability that a call takes longer. It
// is immutable and safe for concurrent use. The nil Survival stands for calls that take no time.
type Survival struct {
	beyond [Buckets]float64 // S at the upper edge of each bucket
	last   int              // the last bucket in which something was answered
	left   float64          // S beyond the last bucket, if it did not fall to 0 there
}

// Survival returns the distribution's survival function, or nil if no call was answered. If S does
// not fall to 0, because the slowest calls were cut short, it falls to 0 at the largest bound.
func (d *Distribution) Survival() *Survival {
	if d.observed == 0 {
		return nil
	}
	end := d.points[len(d.points)-1]
	s := &Survival{last: int(end.bucket), left: end.survival}
	beyond, next := 1.0, 0
	for i := range s.last {
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
	if s == nil || t >= longest {
		return 0
	}
	if t <= shortest {
		return 1
	}
	i := Bucket(t)
	return (s.beyond[max(i-1, 0)] + s.beyond[i]) / 2
}

// Beyond returns S at the upper edge of a bucket.
func (s *Survival) Beyond(bucket int) float64 {
	if s == nil {
		return 0
	}
	return s.beyond[bucket]
}

// Last returns the last bucket that holds a call.
func (s *Survival) Last() int {
	if s == nil {
		return 0
	}
	return s.last
}

// Left returns the share of calls that take longer than everything that was recorded: all of them
// were cut short.
func (s *Survival) Left() float64 {
	if s == nil {
		return 0
	}
	return s.left
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
