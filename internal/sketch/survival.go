package sketch

import "time"

// Survival is a survival function S on every bucket: the probability that a call takes longer. It never changes, and may
// be used concurrently. The nil Survival stands for calls that take no time at all.
type Survival struct {
	beyond [Buckets]float64 // S at the upper edge of each bucket
	last   int              // the last bucket in which something was answered
}

// Survival returns the distribution's survival function, or nil if nothing was observed. Where S does not fall to 0,
// because the slowest calls were cut short, it is taken to do so at the largest bound.
func (d *Distribution) Survival() *Survival {
	if d.observed == 0 {
		return nil
	}
	s := &Survival{last: int(d.points[len(d.points)-1].bucket)}
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

// At returns S(t), within the bucket of t the mean of its values at the edges.
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

// Last returns the last bucket that holds anything.
func (s *Survival) Last() int {
	if s == nil {
		return 0
	}
	return s.last
}

// Distance returns by how much calls are more often slower than expected, and by how much less often, at most. The greater of
// the two is the statistic of Kolmogorov and Smirnov.
func Distance(expected, calls *Survival) (slower, faster float64) {
	for i := range Buckets {
		d := calls.Beyond(i) - expected.Beyond(i)
		slower, faster = max(slower, d), max(faster, -d)
	}
	return slower, faster
}
