package guard

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

const (
	// Failures in the first eighth of a slice do not count: hedges of the slice before may still have an effect.
	slice = 2 * time.Second
	// A trial begins when minFailures calls, and a share minShare of all calls, failed within about lapse. It pauses when no call has
	// failed for lapse. If the trial before found hedges guilty, a third of minShare is enough.
	minFailures, minShare, lapse = 2, 0.004, 15 * time.Second
	stake                        = 0.75 // of its capital is what a trial bets
	// The capital is kept as its logarithm. At proof (9) hedges are guilty. At ruin (0.1) they are not. It begins
	// at 0 (1), or at suspected (3) if the trial before found hedges guilty.
	proof, ruin, suspected = 2.2, -2.3, 1.1
	// If a trial does not find hedges guilty, the next one waits for minWait. The wait doubles each time, up to maxWait. A trial
	// begins at once if calls fail urgent times as often as in the last one.
	minWait, maxWait, urgent = 10 * time.Minute, 320 * time.Minute, 10
)

// trial finds out whether calls fail because of hedges. Time is cut into pairs of slices, for all targets and clients alike, and
// chance decides which slice of a pair has no hedges. If hedges do no harm, either is as likely to have more failures, so a bet
// on "more with hedges" gains nothing on average. Each pair multiplies the capital by 1 + stake × z, with z = (h − q) / √(h + q)
// within ±1, of h failures with hedges and q without. The chance that 1 ever becomes 9 is then 1/9 at most (Ville's inequality).
type trial struct {
	recent      frequency
	running     bool
	since       time.Time
	pair        int64   // that is being counted
	hedged, all float64 // failures in it: h and h + q
	capital     float64
	again       float64       // 1 if the trial before found hedges guilty
	ended       time.Time     // the trial before
	wait        time.Duration // until the next
	fear        float64       // the share of failed calls at which the next does not wait
}

// sliceAt returns the pair of slices at a time, how long the slice has lasted, and whether it is the one without hedges.
func sliceAt(now time.Time) (pair int64, in time.Duration, quiet bool) {
	pair, in = now.UnixNano()/int64(2*slice), time.Duration(now.UnixNano())%(2*slice)
	return pair, in % slice, (in < slice) == (sketch.HashUnit(uint64(pair)) < 0.5)
}

// alike reports whether the slices from began to now are all with hedges, or all without. Of three that follow each other, two differ.
func alike(began, now time.Time) bool {
	first, last := began.UnixNano()/int64(slice), now.UnixNano()/int64(slice)
	_, _, quiet := sliceAt(began)
	_, _, still := sliceAt(now)
	return first == last || first == last-1 && quiet == still
}

// failed notes the failure of a call that began at some time. It counts in a trial only if that was with and without hedges as it is
// now: a call that would have been saved by a hedge fails at its deadline, when the slice without hedges may be over.
func (t *trial) failed(began, now time.Time, calls float64) {
	t.recent.note(now, calls, lapse)
	share, least := t.recent.share(), minShare/(1+2*t.again)
	pair, in, quiet := sliceAt(now)
	switch {
	case !t.running && t.recent.failures >= minFailures && share >= least && (t.again > 0 || now.Sub(t.ended) >= t.wait || share >= t.fear):
		t.running, t.since, t.pair = true, now, pair+1
	case t.running && pair == t.pair && in >= slice/8 && alike(began, now):
		if t.all++; !quiet {
			t.hedged++
		}
	}
}

// advance ends the pair if it is over, and reports whether hedges are guilty.
func (t *trial) advance(now time.Time) (guilty bool) {
	pair, _, _ := sliceAt(now)
	if !t.running || pair <= t.pair {
		return false
	}
	t.capital += math.Log1p(stake * min(max((2*t.hedged-t.all)/math.Sqrt(max(t.all, 1)), -1), 1))
	t.pair, t.hedged, t.all = pair, 0, 0
	switch guilty = t.capital >= proof; {
	case guilty:
		t.capital, t.again = suspected, 1
	case t.capital <= ruin:
		if t.wait = min(max(2*t.wait, minWait), maxWait); now.Sub(t.ended) > 2*t.wait { // the one before was long ago
			t.wait = minWait
		}
		t.capital, t.again = 0, 0
	default:
		t.running = within(now, t.recent.last, lapse)
		return false
	}
	t.running, t.fear, t.ended = false, urgent*t.recent.share(), now
	return guilty
}
