package sketch

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

	// Buckets is the number of buckets, numbered from 0. 1,022 of them cover 1 µs to 10 min at this
	// accuracy.
	Buckets = pages * pageSize
)

// The cubically interpolated logarithm needs 1% more buckets than an exact one, and a third of the
// time.
var (
	index, _ = mapping.NewCubicallyInterpolatedMapping(accuracy) // no error, as it is between 0 and 1
	// FirstBin is the mapping's index of bucket 0.
	FirstBin = index.Index(float64(shortest))
)

// Bucket returns the bucket that a latency is counted in.
func Bucket(d time.Duration) int {
	return index.Index(float64(min(max(d, shortest), longest))) - FirstBin
}

// latencyOf returns a latency that is within 1% of every latency in the bucket.
func latencyOf(bucket int) time.Duration {
	return min(time.Duration(math.Round(float64(edges[bucket])*(1+accuracy))), longest)
}

// edges are the latencies at which buckets begin, and the end of the last one, found by bisection:
// the mapping's own LowerBound overflows on 32-bit machines.
var edges = func() (edges [Buckets + 1]time.Duration) {
	edges[0] = shortest
	for bucket := range Buckets {
		from := edges[bucket]
		to := min(from+from/32, longest) // a bucket is 2% wide
		for from < to {
			if middle := (from + to) / 2; Bucket(middle) > bucket {
				to = middle
			} else {
				from = middle + 1
			}
		}
		edges[bucket+1] = from
	}
	return edges
}()

// UpperEdge returns the latency at which a bucket ends. All latencies in the bucket are shorter.
func UpperEdge(bucket int) time.Duration { return edges[bucket+1] }

// counters has one counter per bucket, in pages that are allocated on first use.
type counters [pages]atomic.Pointer[page]

type page [pageSize]atomic.Uint32

func (c *counters) add(bucket int) {
	p := c[bucket/pageSize].Load()
	if p == nil {
		p = c.grow(bucket / pageSize)
	}
	p[bucket%pageSize].Add(1)
}

func (c *counters) grow(i int) *page {
	c[i].CompareAndSwap(nil, new(page))
	return c[i].Load()
}

// addTo adds the counts to totals.
func (c *counters) addTo(totals *[Buckets]float64) {
	for i := range c {
		if p := c[i].Load(); p != nil {
			for j := range p {
				totals[i*pageSize+j] += float64(p[j].Load())
			}
		}
	}
}

// total returns the number of counted calls, or a number from most on if there are more.
func (c *counters) total(most int64) int64 {
	n := int64(0)
	for i := 0; i < len(c) && n < most; i++ {
		if p := c[i].Load(); p != nil {
			for j := range p {
				n += int64(p[j].Load())
			}
		}
	}
	return n
}
