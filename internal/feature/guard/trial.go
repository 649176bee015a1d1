package guard

import (
	"time"

	"github.com/grpchedge/hedge/internal/feature"
)

const (
	// Periods last long enough for some failures, within these bounds. The first third is left out, in which what hedges did
	// before may still have an effect.
	minPeriod, maxPeriod = 2 * time.Second, 30 * time.Second
	failuresPerPeriod    = 4
	// One period in every sixteen has no hedges, and one in four where few hedges are sent anyway. After each twelve pairs
	// whose failures proved nothing they become rarer, down to an eighth of that.
	every, everyReduced, rarerAfter, maxRarer = 16, 4, 12, 8
	// A trial runs while at least so many calls failed in the last minute or so, and one in ten thousand.
	minFailures, minShare = 5, 0.0001
	// stake is which part of its wealth a trial bets.
	stake = 0.8
	// If hedges do no harm, a verdict comes once in 200 pairs with a failure at most, on average, which take ten hours. The
	// wealth is remembered after a verdict, so that the next one needs less.
	proof, remembered = 200, 10
)

// trial finds out whether calls fail because of hedges. Of two equally long periods, one after the other, one has no hedges.
// Chance decides which. Bets on "more failures with hedges" gain nothing on average if hedges do no harm: see docs/guard.md. Wealth
// starts at 1, and each pair multiplies it by 1 + stake × (h − q) / (h + q), with h failures while hedging and q without.
// Wealth that falls below 1 starts again at 1.
type trial struct {
	running bool
	since   time.Time

	recent frequency

	begin      time.Time // of the pair
	period     time.Duration
	quietFirst bool
	hedged     float64 // failures in the pair
	unhedged   float64
	void       bool // the pair proves nothing
	reduced    bool // few hedges are sent

	wealth float64
	pairs  int // with failures that proved nothing, since the trial began or the last verdict
	draws  uint64
}

func (t *trial) failed(now time.Time, calls float64) {
	t.recent.note(now, calls)
	switch {
	case !t.running && t.recent.failures >= minFailures && t.recent.share() >= minShare:
		t.running, t.since, t.pairs = true, now, 0
		t.next(now)
	case t.running && now.Before(t.begin) && 2*t.length(now) < t.period: // failures have become many
		t.next(now)
	}
	if t.running {
		t.count(now)
	}
}

// count books a failure in the pair, unless it is in no period or in the first third of one.
func (t *trial) count(now time.Time) {
	in := now.Sub(t.begin)
	if in < 0 || in >= 2*t.period || in%t.period < t.period/3 {
		return
	}
	if (in < t.period) == t.quietFirst {
		t.unhedged++
	} else {
		t.hedged++
	}
}

func (t *trial) quiet(now time.Time) bool {
	in := now.Sub(t.begin)
	return t.running && 0 <= in && in < 2*t.period && (in < t.period) == t.quietFirst
}

// length returns how long a period must last now for some failures.
func (t *trial) length(now time.Time) time.Duration {
	known := min(memory, now.Sub(t.recent.first))
	failures := max(t.recent.at(now), 0.01)
	return min(max(time.Duration(failuresPerPeriod/failures*float64(known)), minPeriod), maxPeriod)
}

// next prepares the next pair, at a moment that no pattern of traffic is in step with.
func (t *trial) next(now time.Time) {
	t.period = t.length(now)
	one := every
	if t.reduced {
		one = everyReduced
	}
	room := time.Duration(one*min(1+t.pairs/rarerAfter, maxRarer)-2) * t.period
	t.begin = now.Add(time.Duration((0.5 + t.draw()) * float64(room)))
	t.quietFirst = t.draw() < 0.5
	t.hedged, t.unhedged, t.void = 0, 0, false
}

// advance ends the pair if it is over by now, and reports whether hedges are guilty. No hedge is sent if held.
func (t *trial) advance(now time.Time, held bool) (guilty bool) {
	if !t.running {
		return false
	}
	t.void = t.void || held && !now.Before(t.begin)
	if now.Before(t.begin.Add(2 * t.period)) {
		return false
	}
	if sum := t.hedged + t.unhedged; sum > 0 && !t.void {
		t.wealth = max(1, max(1, t.wealth)*(1+stake*(t.hedged-t.unhedged)/sum))
		if t.wealth < 2 {
			t.pairs++
		}
	}
	if guilty = t.wealth >= proof; guilty {
		t.wealth, t.pairs = remembered, 0
	}
	if t.recent.at(now) < 1 {
		t.running = false
	} else {
		t.next(now)
	}
	return guilty
}

// draw returns a number from 0 to 1, the same ones in every run.
func (t *trial) draw() float64 {
	t.draws++
	return feature.Chance(t.draws)
}
