package followup

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// tally is what some slots hold together.
type tally struct {
	calls
	waited       sketch.Counts // by what callers waited: all who did not give up
	took, longer sketch.Counts // by what primaries took without hedging, and those of which a lower bound is known
	all, losers  float64       // how many calls, and how many of them had their primary cut short
	pairs        []Loser       // followed calls: what the primary took, and what the caller waited
	squares      float64       // the sum of w² of the pairs
	followed     int           // losers that have ended
}

// sum adds up slots, at now. Without enough followed losers, those that were cut short count as lower bounds.
func sum(slots []*slot, now time.Time) *tally {
	t := &tally{}
	drawn := 0.0
	for _, s := range slots {
		t.known, t.spread = t.known.Plus(s.known), t.spread.Plus(s.spread)
		t.gaveUp, t.cut = t.gaveUp.Plus(s.gaveUp), t.cut.Plus(s.cut)
		t.hedged, t.hedges = t.hedged+s.hedged, t.hedges+s.hedges
		for _, l := range s.followed {
			p := *l
			if p.over {
				t.followed++
			} else {
				p.took = max(now.Sub(p.began), p.waited)
			}
			t.pairs = append(t.pairs, p)
			drawn += p.weight
		}
	}
	t.waited, t.losers = t.known.Plus(t.cut), t.cut.Total()
	t.all = t.waited.Total() + t.gaveUp.Total()
	if !t.measured() {
		t.took, t.longer = t.known, t.gaveUp.Plus(t.cut)
		return t
	}
	var answered, running sketch.Counts
	for i := range t.pairs {
		p := &t.pairs[i]
		p.weight *= t.losers / drawn // together they weigh as many as were cut short
		t.squares += p.weight * p.weight
		if p.answered {
			answered.Add(p.took, p.weight)
		} else {
			running.Add(p.took, p.weight)
		}
	}
	t.took, t.longer = t.known.Plus(answered), t.gaveUp.Plus(running)
	return t
}

func (t *tally) measured() bool { return t.followed >= enough }

// curve is a survival function that is taken to change evenly within a bucket.
type curve struct{ *sketch.Survival }

// survival is the product-limit estimate (Kaplan and Meier 1958) with weights.
func survival(took, longer sketch.Counts) curve {
	return curve{sketch.FromCounts(took, longer).Survival()}
}

func (c curve) at(t time.Duration) float64 {
	b := sketch.Bucket(t)
	return c.within(b, min(max(float64(t)-edge(b-1), 0)/(edge(b)-edge(b-1)), 1))
}

func edge(b int) float64 {
	if b < 0 {
		return float64(time.Microsecond)
	}
	return float64(sketch.UpperEdge(b))
}

// within returns the value of c at a part, 0 to 1, of the way from the lower to the upper edge of a bucket.
func (c curve) within(b int, part float64) float64 {
	before := 1.0
	if b > 0 {
		before = c.Beyond(b - 1)
	}
	return before + (c.Beyond(b)-before)*part
}

func (c curve) quantile(beyond float64) time.Duration {
	return fall(func(b int, part float64) float64 { return c.within(b, part) - beyond })
}

// fall returns where f, a function of a bucket and a part of it, falls to 0 for the first time. If it does not, that is the
// last bucket in which f changes.
func fall(f func(b int, part float64) float64) time.Duration {
	last, before := 0, 0.0
	for b := range sketch.Buckets {
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
			return time.Duration(edge(b-1) + (edge(b)-edge(b-1))*high)
		}
		if v != before {
			last = b
		}
		before = v
	}
	return time.Duration(edge(last))
}

// interval is the quantile q of what primaries take without hedging, with its 95% interval: all t at which the share of
// calls that take longer differs from 1 − q by no more than chance explains if t is the quantile.
func (t *tally) interval(q float64) stats.Interval {
	beyond, x := 1-q, survival(t.took, t.longer)
	i := stats.Interval{Value: x.quantile(beyond)}
	if !t.measured() {
		return i
	}
	chance := t.chance(beyond, x)
	const normal = 1.96 // standard deviations of an interval that holds the truth 19 times in 20
	i.Low = fall(func(b int, part float64) float64 { return x.within(b, part) - beyond - normal*chance(b, part) })
	i.High = fall(func(b int, part float64) float64 { return x.within(b, part) - beyond + normal*chance(b, part) })
	return i
}

// chance returns the standard deviation of the share of calls that take longer than a point in a bucket, if that share is
// beyond. It has three parts: which calls came, which of the early ones were drawn, and which of the losers were followed.
// Within a bucket it is less, as the calls of the bucket are taken to be spread evenly.
func (t *tally) chance(beyond float64, x curve) func(b int, part float64) float64 {
	var early, losers [sketch.Buckets]float64
	for _, c := range t.spread {
		early[c.Bucket] = float64(c.Calls)
	}
	for b := 1; b < len(early); b++ {
		early[b] += early[b-1]
	}
	for _, p := range t.pairs {
		losers[sketch.Bucket(p.took)] += p.weight / t.losers
	}
	known := survival(t.known, t.gaveUp)
	return func(b int, part float64) float64 {
		even := part * (1 - part)
		v := t.all * (beyond*(1-beyond) - even*(x.within(b, 0)-x.Beyond(b)))
		v += early[b]*beyond*beyond + (early[len(early)-1]-early[b])*(1-beyond)*(1-beyond)
		if t.losers > 0 {
			p := (beyond*t.all - (t.all-t.losers)*known.within(b, part)) / t.losers // the share of losers beyond
			p = min(max(p, 0), 1)
			v += max(p*(1-p)-even*losers[b], 0) * max(t.squares-t.losers, 0)
		}
		return math.Sqrt(max(v, 0)) / t.all
	}
}

// Measure returns what hedging has gained until now.
func (m *Method) Measure(now time.Time) (g stats.Gain) {
	if m == nil {
		return g
	}
	m.mu.Lock()
	t, q, over := sum(m.slots, now), m.target, time.Duration(0)
	if len(m.slots) > 0 {
		over = now.Sub(m.slots[0].start)
	}
	m.mu.Unlock()
	if t.all == 0 {
		return g
	}
	g = stats.Gain{
		Over: over, Calls: int64(t.all), Followed: t.followed, Measured: t.measured(),
		NothingToGain: m.NothingToGain(), Percentile: 100 * q,
		Unhedged: t.interval(q),
		Hedged:   survival(t.waited, t.gaveUp).quantile(1 - q),
		Load:     t.hedges / t.all,
	}
	if t.measured() {
		t.save(&g)
	}
	return g
}

func (t *tally) save(g *stats.Gain) {
	saved, helped, byThese := 0.0, 0.0, 0.0
	var spared []Loser
	slices.SortFunc(t.pairs, func(a, b Loser) int { return cmp.Compare(a.saved(), b.saved()) })
	for _, p := range t.pairs {
		saved += p.weight * float64(p.saved())
		if float64(p.saved()) > tooLittle*float64(p.took) {
			spared, helped, byThese = append(spared, p), helped+p.weight, byThese+p.weight*float64(p.saved())
		}
	}
	g.Saved, g.SavedPerHedge = time.Duration(saved/t.all), time.Duration(saved/t.hedges)
	g.Helped, g.SavedNothing = helped/t.all, 1-helped/t.hedged
	sum := 0.0
	for _, p := range spared {
		g.SavedPerHelped = time.Duration(byThese / helped)
		if sum += p.weight; sum-p.weight < 0.5*helped {
			g.SavedP50 = p.saved()
		}
		if sum-p.weight < 0.9*helped {
			g.SavedP90 = p.saved()
		}
	}
}

// saved is how much less the caller waited; at least that if the primary did not answer.
func (l Loser) saved() time.Duration { return l.took - l.waited }
