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
	d := time.Duration(math.Round(lowerBound(bucket) * (1 + accuracy)))
	return min(max(d, shortest), longest)
}

// width is the width of a bucket, in the mapping's approximation of the binary logarithm.
var width = math.Log2(math.Pow((1+accuracy)/(1-accuracy), 10*math.Ln2/7))

// lowerBound returns the latency, in nanoseconds, at which a bucket begins: the inverse of index,
// by Cardano's formula. The mapping's own LowerBound overflows on 32-bit machines.
func lowerBound(bucket int) float64 {
	log := float64(bucket+FirstBin) * width
	const a, b, c = 6.0 / 35, -3.0 / 5, 10.0 / 7 // of the cubic polynomial that stands for the logarithm
	exponent := math.Floor(log)
	d0 := b*b - 3*a*c
	d1 := 2*b*b*b - 9*a*b*c - 27*a*a*(log-exponent)
	p := math.Cbrt((d1 - math.Sqrt(d1*d1-4*d0*d0*d0)) / 2)
	return math.Ldexp(1-(b+p+d0/p)/(3*a), int(exponent))
}

// upperEdges are the latencies at which buckets end.
var upperEdges = func() (edges [Buckets]time.Duration) {
	for i := range edges {
		edges[i] = min(time.Duration(math.Ceil(lowerBound(i+1))), longest)
	}
	return edges
}()

// UpperEdge returns the latency at which a bucket ends. All latencies in the bucket are shorter.
func UpperEdge(bucket int) time.Duration { return upperEdges[bucket] }

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
