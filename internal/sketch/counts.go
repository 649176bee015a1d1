package sketch

import (
	"slices"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/store"
)

// Counts is the number of calls that ended in each non-empty bucket, in ascending order of buckets.
// Calls are weights and need not be whole.
type Counts []Count

type Count struct {
	Bucket int32 // 0 ≤ Bucket < Buckets
	Calls  float32
}

// Counts returns the distribution's calls, distributed by its estimate: a call that was cut short
// counts in the buckets of the calls that lasted longer, or of the largest bound. Counts is nil if
// no call was answered.
func (d *Distribution) Counts() Counts {
	if d.observed == 0 {
		return nil
	}
	counts := make(Counts, 0, len(d.points))
	all, left := float64(d.Total()), 1.0
	for _, p := range d.points {
		counts = counts.with(int(p.bucket), all*(left-p.survival))
		left = p.survival
	}
	return counts.with(int(d.points[len(d.points)-1].bucket), all*left)
}

// with adds calls to the last bucket of the counts, or to a later bucket.
func (c Counts) with(bucket int, calls float64) Counts {
	switch last := len(c) - 1; {
	case !(float32(calls) > 0):
		return c
	case last >= 0 && c[last].Bucket == int32(bucket):
		c[last].Calls += float32(calls)
		return c
	}
	return append(c, Count{int32(bucket), float32(calls)})
}

func (c Counts) Total() float64 {
	sum := 0.0
	for _, count := range c {
		sum += float64(count.Calls)
	}
	return sum
}

// Times returns the counts multiplied by factor, which must not be negative.
func (c Counts) Times(factor float64) Counts {
	product := make(Counts, 0, len(c))
	for _, count := range c {
		product = product.with(int(count.Bucket), factor*float64(count.Calls))
	}
	return product
}

func (c *Counts) Add(d time.Duration) {
	bucket := int32(Bucket(d))
	i, found := slices.BinarySearchFunc(*c, bucket, func(count Count, b int32) int { return int(count.Bucket - b) })
	if !found {
		*c = slices.Insert(*c, i, Count{Bucket: bucket})
	}
	(*c)[i].Calls++
}

// Plus returns the distribution of d's calls, from a window, and of others, which were all
// answered. The zero Distribution has no calls.
func (d *Distribution) Plus(others Counts) *Distribution {
	if len(others) == 0 {
		return d
	}
	var t tally
	for _, p := range d.points {
		t.answered[p.bucket], t.cut[p.bucket] = float64(p.answered), float64(p.cut)
	}
	for _, count := range others {
		t.answered[count.Bucket] += float64(count.Calls)
	}
	sum := t.distribution()
	sum.observed, sum.bounded = max(sum.observed, d.observed+1), d.bounded
	return sum
}

// DDSketch returns the counts as a sketch of nanoseconds, of at most 8.2 KB in protobuf.
func (c Counts) DDSketch() *ddsketch.DDSketch {
	bins := store.NewDenseStore()
	for _, count := range c {
		bins.AddWithCount(int(count.Bucket)+firstBin, float64(count.Calls))
	}
	return ddsketch.NewDDSketch(index, bins, store.NewSparseStore())
}

// FromDDSketch returns the distribution of a sketch of nanoseconds, with any mapping.
func FromDDSketch(s *ddsketch.DDSketch) *Distribution {
	var t tally
	s.ForEach(func(value, count float64) (stop bool) {
		t.answered[Bucket(time.Duration(min(max(value, 0), float64(longest))))] += count
		return false
	})
	return t.distribution()
}
