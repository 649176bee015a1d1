package latency

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/DataDog/sketches-go/ddsketch/mapping"
)

const (
	accuracy = 0.01
	shortest = time.Microsecond
	longest  = 10 * time.Minute

	pageSize = 64
	pages    = 16
	buckets  = pages * pageSize // 1,022 of them cover shortest to longest at this accuracy
)

// The cubically interpolated logarithm needs 1% more buckets than an exact one, and a third of the time.
var (
	index  = newMapping()
	offset = index.Index(float64(shortest))
)

func newMapping() *mapping.CubicallyInterpolatedMapping {
	m, err := mapping.NewCubicallyInterpolatedMapping(accuracy)
	if err != nil {
		panic(err) // accuracy is not between 0 and 1
	}
	return m
}

func bucketOf(d time.Duration) int {
	return index.Index(float64(min(max(d, shortest), longest))) - offset
}

// latencyOf returns the latency within 1% of all those in a bucket.
func latencyOf(bucket int) time.Duration {
	d := time.Duration(math.Round(index.Value(bucket + offset)))
	return min(max(d, shortest), longest)
}

// counts has a counter for each bucket, in pages that are allocated when first counted into.
type counts [pages]atomic.Pointer[page]

type page [pageSize]atomic.Uint32

func (c *counts) add(bucket int) {
	p := c[bucket/pageSize].Load()
	if p == nil {
		p = c.grow(bucket / pageSize)
	}
	p[bucket%pageSize].Add(1)
}

func (c *counts) grow(i int) *page {
	c[i].CompareAndSwap(nil, new(page))
	return c[i].Load()
}

// addTo adds the counts to totals.
func (c *counts) addTo(totals *[buckets]int64) {
	for i := range c {
		p := c[i].Load()
		if p == nil {
			continue
		}
		for j := range p {
			totals[i*pageSize+j] += int64(p[j].Load())
		}
	}
}
