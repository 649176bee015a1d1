package guard

import (
	"math"
	"time"
)

const (
	// settle is how long after the last hedge a RESOURCE_EXHAUSTED may still be caused by it.
	settle = 10 * time.Second
	// A baseline is counted for twice the time between two groups of such failures, within these bounds, and if there are
	// some, for longer until there are enough.
	minCount, maxCount = time.Minute, 10 * time.Minute
	enough             = 40
	// fresh is how long a baseline is used before another is counted.
	fresh = time.Hour
	// expected is how many times the baseline's rate is expected, and uncertain by how many standard deviations the rate may
	// be higher than the count.
	expected, uncertain = 1.25, 1.5
	// firstCredit and maxCredit are how many failures are expected at once, at first and at most. If they come by chance, at
	// the rate of the baseline, a credit of 20 is used up once in some ten thousand of them.
	firstCredit, maxCredit = 10, 20
)

// baseline knows how often RESOURCE_EXHAUSTED comes without hedges.
//
// The first group of such failures counts in full. If there is a second group within ten minutes, or the first goes on
// without hedges, then no hedge is sent for a while, and such failures are counted. From then on so many are expected,
// and a failure that is expected changes nothing. They may be another client's, or have nothing to do with load.
type baseline struct {
	group   time.Time // when the last group began
	latest  time.Time // the last failure that counted
	rate    float64   // failures a hedge earned
	credit  float64   // failures that are expected now
	counted time.Time // when the rate was found; zero: never

	from, until time.Time // of the count that goes on; zero: none
	begun       time.Time // when earned was read
	earned      float64
	failures    float64 // in it
}

// exhausted takes note of a failure, and reports whether it counts against hedges.
func (b *baseline) exhausted(now time.Time, earned float64) bool {
	if !b.until.IsZero() {
		if !now.Before(b.from) {
			b.failures++
		}
		return false
	}
	if b.credit >= 1 {
		b.credit--
		return false
	}
	since := now.Sub(b.group)
	goesOn := now.Sub(b.latest) < pause // without a hedge in between
	b.latest = now
	switch {
	case goesOn && since <= settle:
		return true
	case !b.group.IsZero() && since <= maxCount && (b.counted.IsZero() || now.Sub(b.counted) > fresh):
		b.from, b.failures = now, 0
		if !goesOn {
			b.from = now.Add(settle)
		}
		b.until = b.from.Add(min(max(2*since, minCount), maxCount))
		b.begun, b.earned = now, earned
	}
	if !goesOn {
		b.group = now
	}
	return true
}

// counting returns until when failures are counted; zero if they are not.
func (b *baseline) counting() time.Time { return b.until }

// advance brings it to now, where e was earned since the last time.
func (b *baseline) advance(now time.Time, earned, e float64) {
	for !b.until.IsZero() && !now.Before(b.until) {
		if b.failures > 0 && b.failures < enough && b.until.Sub(b.from) < maxCount {
			b.until = b.until.Add(minCount / 2)
			continue
		}
		b.rate = 0
		if n := earned - b.earned; n > 0 { // since begun, of which the count is a part
			part := b.until.Sub(b.from).Seconds() / now.Sub(b.begun).Seconds()
			b.rate = (b.failures + uncertain*math.Sqrt(b.failures)) / (n * part)
		}
		b.counted, b.until = now, time.Time{}
		b.credit = min(b.failures, firstCredit)
		return
	}
	b.credit = min(b.credit+expected*b.rate*e, maxCredit)
}
