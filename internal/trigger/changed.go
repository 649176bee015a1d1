package trigger

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

const unlikely = 1e-7 // that chance explains a difference

// Changed reports whether the calls since a moment are slower or faster than the calls before it. As
// in the Kolmogorov-Smirnov test, it tests the largest difference of the distributions. This must
// exceed matters, and the bound that independent samples of one distribution exceed with probability
// unlikely (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's constant).
func Changed(before, since *sketch.Distribution) (slower, faster bool) {
	earlier, newer := before.Survival(), since.Survival()
	if earlier == nil || newer == nil { // calls that were all cut short do not show a latency
		return false, false
	}
	n, m := float64(before.Total()), float64(since.Total())
	least := max(matters, math.Sqrt(math.Log(2/unlikely)/2*(1/n+1/m)))
	up, down := sketch.Distance(earlier, newer)
	return up > least, down > least
}

// changedAt returns the mark at which the newest calls begin, those of the last window step or more, if
// Changed reports that they differ from the calls before them.
//
// Calls are compared by their start. The fastest calls of a cohort end first, so an incomplete cohort
// can only prove to be slower. A cohort older than age, the reported tail, is complete.
func (l *Learner) changedAt(now time.Time, age time.Duration) (at sketch.Mark, ok bool) {
	for _, age := range []time.Duration{0, age} {
		from, to := l.window.Newest(now, age, 1)
		before, since := l.window.Between(now, l.since, from), l.window.Between(now, max(l.since, from), to)
		if slower, faster := Changed(before, since); age == 0 && slower || age > 0 && faster {
			return from, true
		}
	}
	return 0, false
}

// sinceChange returns the calls of the window since latencies last changed.
//
// A change drops everything learned before it. A backend of three that stalls now and then for a second
// is no change: the share of calls that it slows is below matters, and part of the distribution.
func (l *Learner) sinceChange(now time.Time) *sketch.Distribution {
	c, all := l.config.Load(), l.window.Between(now, l.since, sketch.Latest)
	at, changed := l.changedAt(now, Tail(all.Survival(), reported))
	if !changed {
		return all
	}
	l.since = at
	l.forgetHedges(c)
	return l.window.Between(now, at, sketch.Latest)
}
