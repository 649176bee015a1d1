package whatif

import (
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// calls is the distribution of a group's latencies. Counts are weights: counts that Prometheus
// computes from counters need not be whole.
type calls struct {
	value   string // of the column that tells groups apart
	count   float64
	slowest time.Duration
	pages   [sketch.Buckets / pageSize]*[pageSize]float64
}

// A group takes memory for where its latencies are, as there may be many groups.
const pageSize = 64

func (c *calls) add(d time.Duration, n float64) {
	c.count += n
	c.slowest = max(c.slowest, d)
	c.inBucket(sketch.Bucket(d), n)
}

// spread adds n calls that took from low to high, evenly.
func (c *calls) spread(low, high time.Duration, n float64) {
	c.count += n
	c.slowest = max(c.slowest, high)
	first, last := sketch.Bucket(low), sketch.Bucket(max(high-1, 0))
	from, rest := low, n
	for bucket := first; bucket < last; bucket++ {
		to := sketch.UpperEdge(bucket)
		part := n * float64(to-from) / float64(high-low)
		c.inBucket(bucket, part)
		from, rest = to, rest-part
	}
	c.inBucket(last, max(rest, 0))
}

func (c *calls) inBucket(bucket int, n float64) {
	p := &c.pages[bucket/pageSize]
	if *p == nil {
		*p = new([pageSize]float64)
	}
	(*p)[bucket%pageSize] += n
}

func (c *calls) distribution() *sketch.Distribution {
	var counts sketch.Counts
	for i, p := range c.pages {
		if p == nil {
			continue
		}
		for j, n := range p {
			if n > 0 {
				counts = append(counts, sketch.Count{Bucket: int32(i*pageSize + j), Calls: float32(n)})
			}
		}
	}
	return new(sketch.Distribution).Plus(counts)
}
