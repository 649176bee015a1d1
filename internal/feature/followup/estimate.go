package followup

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

const buckets = sketch.Buckets

// perBucket has a weight for each bucket.
type perBucket [buckets]float64

// tally is what some slots hold together.
type tally struct {
	waited, gaveUp perBucket // by what callers waited
	cutWaited      perBucket // of the calls whose primary was cut short
	known          perBucket // by what primaries took, where a hedge cut none short
	spread         perBucket // of those, the sum of w·(w − 1)
	took, longer   perBucket // by what primaries took without hedging, and those of which a lower bound is known
	calls          float64
	hedged, cut    float64
	hedges         float64
	pairs          []pair
	squares        float64 // the sum of w² of the pairs
	followed       int     // losers that have ended
}

// pair is a followed call: what its primary took, and what its caller waited.
type pair struct {
	took, waited time.Duration
	answered     bool
	weight       float64
}

// sum adds up slots, at now. Without enough followed losers, those that were cut short count as lower bounds.
func sum(slots []*slot, now time.Time) *tally {
	t := &tally{}
	drawn := 0.0
	for _, s := range slots {
		t.cut += float64(s.cut)
		t.hedged += float64(s.known + s.cut)
		t.hedges += float64(s.hedges)
		for i, c := range s.cells {
			b, known := s.low+i, float64(c.late)+float64(c.early)
			t.known[b] += known
			t.spread[b] += float64(c.spread)
			t.gaveUp[b] += float64(c.gaveUp)
			t.cutWaited[b] += float64(c.waited)
			t.waited[b] += known + float64(c.waited)
			t.calls += known + float64(c.gaveUp) + float64(c.waited)
		}
		for _, r := range s.followed {
			p := pair{took: r.took, waited: r.waited, answered: r.state == ended, weight: 1 / float64(r.share)}
			if r.state == running {
				p.took = max(now.Sub(r.began), r.waited)
			} else {
				t.followed++
			}
			t.pairs = append(t.pairs, p)
			drawn += p.weight
		}
	}
	t.took, t.longer = t.known, t.gaveUp
	if !t.measured() {
		for b := range t.longer {
			t.longer[b] += t.cutWaited[b]
		}
		return t
	}
	for i := range t.pairs {
		p := &t.pairs[i]
		p.weight *= t.cut / drawn // together they weigh as many as were cut short
		t.squares += p.weight * p.weight
		if p.answered {
			t.took[sketch.Bucket(p.took)] += p.weight
		} else {
			t.longer[sketch.Bucket(p.took)] += p.weight
		}
	}
	return t
}

func (t *tally) measured() bool { return t.followed >= enough }

// curve is a survival function: the share of calls that take longer than the upper edge of each bucket.
type curve perBucket

// survival is the product-limit estimate (Kaplan and Meier 1958) with weights. A call cut short within a bucket was at risk
// for half of it. Those that took longer than all that is known are taken to have ended there.
func survival(took, longer *perBucket) *curve {
	risk, s, c, last := 0.0, 1.0, &curve{}, 0
	for b := range took {
		if all := took[b] + longer[b]; all > 0 {
			risk, last = risk+all, b
		}
	}
	for b := range took {
		if took[b] > 0 {
			s *= max(0, 1-took[b]/(risk-longer[b]/2))
		}
		if risk -= took[b] + longer[b]; b >= last {
			s = 0
		}
		c[b] = s
	}
	return c
}

// at returns the value of c at t. Within a bucket it is taken to change evenly with the logarithm of t.
func (c *curve) at(t time.Duration) float64 {
	b := sketch.Bucket(t)
	low := edge(b - 1)
	return c.within(b, min(math.Log(max(float64(t)/low, 1))/math.Log(edge(b)/low), 1))
}

// edge is the upper edge of a bucket.
func edge(b int) float64 {
	if b < 0 {
		return float64(time.Microsecond)
	}
	return float64(sketch.UpperEdge(b))
}

// within returns the value of c at a part, 0 to 1, of the way from the lower to the upper edge of a bucket.
func (c *curve) within(b int, part float64) float64 {
	before := 1.0
	if b > 0 {
		before = c[b-1]
	}
	return before + (c[b]-before)*part
}

// quantile is where c falls to beyond.
func (c *curve) quantile(beyond float64) time.Duration {
	return fall(func(b int, part float64) float64 { return c.within(b, part) - beyond })
}

// fall returns where f, a function of a bucket and a part of it, falls to 0 for the first time. If it does not, that is the
// last bucket in which f changes.
func fall(f func(b int, part float64) float64) time.Duration {
	last, before := 0, 0.0
	for b := range buckets {
		v := f(b, 1)
		if v <= 0 {
			low, high := 0.0, 1.0
			for high-low > 1e-3 {
				if middle := (low + high) / 2; f(b, middle) > 0 {
					low = middle
				} else {
					high = middle
				}
			}
			return time.Duration(edge(b-1) * math.Pow(edge(b)/edge(b-1), high))
		}
		if v != before {
			last = b
		}
		before = v
	}
	return time.Duration(edge(last))
}

// normal is the quantile of the normal distribution for an interval that holds the truth 19 times in 20.
const normal = 1.96

// interval is the quantile q of what primaries take without hedging, with its 95% interval: all t at which the share of
// calls that take longer differs from 1 − q by no more than chance explains (Woodruff, "Confidence Intervals for Medians and
// Other Position Measures", JASA 1952), where chance is taken as it is if t is the quantile (Wilson, "Probable Inference",
// JASA 1927).
func (t *tally) interval(q float64) stats.Interval {
	beyond, x := 1-q, survival(&t.took, &t.longer)
	i := stats.Interval{Value: x.quantile(beyond)}
	if !t.measured() {
		return i
	}
	chance := t.chance(beyond, x)
	i.Low = fall(func(b int, part float64) float64 { return x.within(b, part) - beyond - normal*chance(b, part) })
	i.High = fall(func(b int, part float64) float64 { return x.within(b, part) - beyond + normal*chance(b, part) })
	return i
}

// chance returns the standard deviation of the share of calls that take longer than a point in a bucket, if that share is
// beyond. It has three parts: which calls came, which of the early ones were drawn, and which of the losers were followed.
// Within a bucket it is less, as the calls of the bucket are taken to be spread evenly.
func (t *tally) chance(beyond float64, x *curve) func(b int, part float64) float64 {
	early, losers := &perBucket{}, &perBucket{}
	for b := range early {
		early[b] = t.spread[b]
		if b > 0 {
			early[b] += early[b-1]
		}
	}
	for _, p := range t.pairs {
		losers[sketch.Bucket(p.took)] += p.weight / t.cut
	}
	known := survival(&t.known, &t.gaveUp)
	return func(b int, part float64) float64 {
		even := part * (1 - part)
		v := t.calls * (beyond*(1-beyond) - even*(x.within(b, 0)-x[b]))
		v += early[b]*beyond*beyond + (early[buckets-1]-early[b])*(1-beyond)*(1-beyond)
		if t.cut > 0 {
			p := (beyond*t.calls - (t.calls-t.cut)*known.within(b, part)) / t.cut // the share of losers beyond
			p = min(max(p, 0), 1)
			v += max(p*(1-p)-even*losers[b], 0) * max(t.squares-t.cut, 0)
		}
		return math.Sqrt(max(v, 0)) / t.calls
	}
}
