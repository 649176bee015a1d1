package guard

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/stats"
)

const (
	// The share grows back from 0 to 1 in minRecovery. If a sign comes again soon, that takes twice as long, up to maxRecovery.
	minRecovery, maxRecovery = 45 * time.Second, 8 * time.Minute
	minSent                  = 1.0 / 64 // of due hedges are always sent, unless there is a pause

	settle        = 10 * time.Second // after a hedge: until then it may be the cause of a RESOURCE_EXHAUSTED
	signFailures  = 10               // RESOURCE_EXHAUSTED within about signWindow are a sign that hedges are the cause
	signWindow    = 3 * time.Second
	suspectedFor  = 10 * time.Minute // after a sign: until then one RESOURCE_EXHAUSTED is enough
	shortPause    = 5 * time.Second  // without hedges after a sign; longer while failures go on, up to minCount
	minCount      = time.Minute      // the pause is twice the time between two signs that are at most maxCount apart
	maxCount      = 6 * time.Minute  // the longest pause
	expectedTimes = 1.25             // the rate of failures in pauses, times this, is expected
	minDepth      = 20               // expected failures that can be saved up
	rateWindow    = 30 * time.Minute // over which failures are remembered that lower the expected rate
)

// judge decides about the hedges of a method, or of a target as a whole: by RESOURCE_EXHAUSTED, and by its trial. The zero judge
// has seen nothing.
type judge struct {
	watching   atomic.Bool // false: every hedge passes
	sent, last time.Time   // the last hedge, and when it was brought up to date
	calls      float64     // at that time

	missing  float64       // what the share has lost
	recovery time.Duration // of all of it
	since    time.Time
	why      stats.GuardReason
	trial    trial

	// RESOURCE_EXHAUSTED that goes on in a pause of a minute or more, in which no hedge was sent, is the baseline. From then on
	// failures are expected at that rate, and an expected failure changes nothing: see docs/guard.md.
	noted, seen     frequency // RESOURCE_EXHAUSTED that nothing explains, and all
	begun           time.Time // the last pause, which begins with a sign
	length          time.Duration
	failures, first float64                               // in the pause, and calls before it
	counted         bool                                  // the pause is a part of the baseline, if it was long enough
	expected        struct{ rate, credit, depth float64 } // failures: for each call, saved up now, and saved up at most
}

func (j *judge) pausing(now time.Time) bool { return now.Sub(j.begun) < j.length }

func (j *judge) state(now time.Time) stats.Guard {
	g := stats.Guard{Share: 1 - j.missing, Since: j.since, Reason: j.why}
	if _, _, quiet := sliceAt(now); j.pausing(now) || j.trial.running && quiet {
		g.Share = 0
	}
	if j.missing == 0 && j.trial.running {
		g.Since, g.Reason = j.trial.since, stats.GuardTesting
	} else if j.pausing(now) && j.length >= minCount {
		g.Reason = stats.GuardCounting
	}
	return g
}

// exhausted notes a RESOURCE_EXHAUSTED, and reports whether hedges may be its cause. alone: a hedge failed and its primary did
// not. Hedges are held back if it is a sign, and one of this judge's own.
func (j *judge) exhausted(now time.Time, calls float64, alone, own bool) bool {
	j.seen.note(now, calls, rateWindow)
	j.expected.rate = min(j.expected.rate, j.seen.share())
	pausing, since := j.pausing(now), now.Sub(j.begun)
	switch {
	case pausing && since > settle:
		j.failures++
		j.length = max(j.length, min(since+shortPause, minCount))
		return false
	case !pausing && !within(now, j.sent, settle):
		return false
	case !pausing && j.expected.credit >= 1:
		j.expected.credit--
		return false
	}
	j.noted.note(now, calls, signWindow)
	if !own || !alone && j.missing == 0 && j.noted.failures < signFailures && since > suspectedFor {
		return true
	}
	recovery := max(j.recovery, minRecovery)
	if pausing {
		j.length = max(j.length, since+shortPause)
	} else {
		if recovery = min(2*recovery, maxRecovery); j.missing == 0 && since > recovery {
			recovery = minRecovery
		}
		j.begun, j.length, j.failures, j.first, j.counted = now, shortPause, 0, calls, false
		if since <= maxCount {
			j.length = min(max(2*since, minCount), maxCount)
		}
	}
	j.reduce(now, 1-(1-j.missing)*math.Exp2(-j.noted.failures), stats.GuardExhausted, recovery)
	j.noted.failures = 0
	return true
}

func (j *judge) reduce(now time.Time, missing float64, why stats.GuardReason, recovery time.Duration) {
	if j.missing == 0 || j.why != why {
		j.since = now
	}
	j.missing, j.why, j.recovery = min(missing, 1-minSent), why, recovery
	j.watching.Store(true)
}

// advance brings everything to now: what has grown since the last time, and pauses and trials that have ended.
func (j *judge) advance(now time.Time, calls float64) {
	if !now.After(j.last) {
		return
	}
	j.expected.credit = min(j.expected.credit+expectedTimes*j.expected.rate*max(0, calls-j.calls), j.expected.depth)
	after := now.Sub(j.begun) - j.length // the pause
	if j.missing -= min(now.Sub(j.last), max(after, 0)).Seconds() / max(j.recovery, 1).Seconds(); j.missing <= 0 {
		j.missing, j.why = 0, stats.GuardNone
	}
	if after >= 0 && j.length >= minCount && !j.counted {
		// The calls of the pause, without the time that did not count. Nobody looked when it ended.
		during := (calls - j.first) * (j.length - settle).Seconds() / now.Sub(j.begun).Seconds()
		j.expected.rate = (j.failures + math.Sqrt(j.failures)/2) / max(during, 1) // with half a standard deviation
		j.expected.credit, j.expected.depth, j.counted = min(j.failures, minDepth/4), max(minDepth, 2*j.failures), true
	}
	if j.trial.advance(now) {
		j.reduce(now, 1, stats.GuardGuilty, min(max(2*j.recovery, maxRecovery/2), maxRecovery))
	}
	j.watching.Store(j.missing > 0 || j.trial.running)
	j.last, j.calls = now, calls
}

// frequency says how many calls failed lately, with fading memory, as of the last failure.
type frequency struct {
	failures, calls, lastCalls float64
	last                       time.Time
}

// note notes a failure. One that came memory before counts 1/e.
func (f *frequency) note(now time.Time, calls float64, memory time.Duration) {
	gap := max(now.Sub(f.last), 0).Seconds() / memory.Seconds()
	f.calls = f.calls*math.Exp(-gap) + max(0, calls-f.lastCalls)*min(1, 1/gap)
	f.failures, f.last, f.lastCalls = f.failures*math.Exp(-gap)+1, now, calls
}

// share is the share of calls that failed lately.
func (f *frequency) share() float64 { return f.failures / max(1, f.calls) }

// comparable reports whether calls fail at least a quarter as often as all do: the reason may be the same.
func (f *frequency) comparable(all *frequency) bool { return f.share() >= all.share()/4 }
