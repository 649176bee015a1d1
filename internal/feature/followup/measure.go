package followup

import (
	"slices"
	"time"

	"github.com/grpchedge/hedge/stats"
)

// Measure returns what hedging has gained until now.
func (m *Method) Measure(now time.Time) stats.Gain {
	if m == nil {
		return stats.Gain{}
	}
	m.mu.Lock()
	if len(m.slots) == 0 {
		m.mu.Unlock()
		return stats.Gain{}
	}
	t, q, over := sum(m.slots, now), m.target, now.Sub(m.slots[0].start)
	m.mu.Unlock()

	g := stats.Gain{
		Over: over, Calls: int64(t.calls), Followed: t.followed, Measured: t.measured(),
		Percentile: 100 * q,
		Unhedged:   t.interval(q),
		Hedged:     survival(&t.waited, &t.gaveUp).quantile(1 - q),
		Load:       t.hedges / t.calls,
	}
	if t.measured() {
		t.save(&g)
	}
	g.NothingToGain = m.nothing.Load()
	return g
}

// save fills in what was saved.
func (t *tally) save(g *stats.Gain) {
	slices.SortFunc(t.pairs, func(a, b pair) int { return int(a.saved() - b.saved()) })
	saved, helped, savedByThese := 0.0, 0.0, 0.0
	for _, p := range t.pairs {
		saved += p.weight * float64(p.saved())
		if p.helped() {
			helped += p.weight
			savedByThese += p.weight * float64(p.saved())
		}
	}
	g.Saved = time.Duration(saved / t.calls)
	g.SavedPerHedge = time.Duration(saved / t.hedges)
	g.Helped = helped / t.calls
	g.SavedNothing = 1 - helped/t.hedged
	if helped > 0 {
		g.SavedPerHelped = time.Duration(savedByThese / helped)
		g.SavedP50, g.SavedP90 = t.savedQuantile(0.5*helped), t.savedQuantile(0.9*helped)
	}
}

// savedQuantile is the time saved that calls of the given weight, among those that were helped, do not exceed.
func (t *tally) savedQuantile(weight float64) time.Duration {
	last := time.Duration(0)
	for _, p := range t.pairs {
		if !p.helped() {
			continue
		}
		last = p.saved()
		if weight -= p.weight; weight <= 0 {
			break
		}
	}
	return last
}

// saved is how much less the caller waited; at least that if the primary did not answer.
func (p pair) saved() time.Duration { return p.took - p.waited }

// helped reports whether the hedge has spared the caller more than a twentieth of the time.
func (p pair) helped() bool { return float64(p.saved()) > tooLittle*float64(p.took) }
