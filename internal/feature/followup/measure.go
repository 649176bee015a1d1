package followup

import (
	"cmp"
	"slices"
	"time"

	"github.com/grpchedge/hedge/stats"
)

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
	if t.calls == 0 {
		return g
	}
	g = stats.Gain{
		Over: over, Calls: int64(t.calls), Followed: t.followed, Measured: t.measured(),
		NothingToGain: m.NothingToGain(), Percentile: 100 * q,
		Unhedged: t.interval(q),
		Hedged:   survival(t.waited, t.gaveUp).quantile(1 - q),
		Load:     t.hedges / t.calls,
	}
	if t.measured() {
		t.save(&g)
	}
	return g
}

// save fills in what was saved.
func (t *tally) save(g *stats.Gain) {
	saved, helped, byThese := 0.0, 0.0, 0.0
	var spared []pair
	slices.SortFunc(t.pairs, func(a, b pair) int { return cmp.Compare(a.saved(), b.saved()) })
	for _, p := range t.pairs {
		saved += p.weight * float64(p.saved())
		if float64(p.saved()) > tooLittle*float64(p.took) {
			spared, helped, byThese = append(spared, p), helped+p.weight, byThese+p.weight*float64(p.saved())
		}
	}
	g.Saved, g.SavedPerHedge = time.Duration(saved/t.calls), time.Duration(saved/t.hedges)
	g.Helped, g.SavedNothing = helped/t.calls, 1-helped/t.hedged
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
func (p pair) saved() time.Duration { return p.took - p.waited }
