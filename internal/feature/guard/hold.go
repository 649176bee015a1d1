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

// hold says how many hedges of a method, or of a target as a whole, are held back: by RESOURCE_EXHAUSTED, and by its trial. The zero hold
// has seen nothing.
type hold struct {
	watching   atomic.Bool // false: every hedge passes
	sent, last time.Time   // the last hedge, and when it was brought up to date
	calls      float64     // at that time

	missing  float64       // what the share has lost
	recovery time.Duration // of all of it
	since    time.Time

	// RESOURCE_EXHAUSTED that goes on in a pause of a minute or more, in which no hedge was sent, is the baseline. From then on
	// failures are expected at that rate, and an expected failure changes nothing: see docs/guard.md.
	noted, seen     frequency // RESOURCE_EXHAUSTED that nothing explains, and all
	begun           time.Time // the last pause, which begins with a sign
	length          time.Duration
	failures, first float64                               // in the pause, and calls before it
	counted         bool                                  // the pause is a part of the baseline, if it was long enough
	expected        struct{ rate, credit, depth float64 } // failures: for each call, saved up now, and saved up at most
}

func (h *hold) pausing(now time.Time) bool { return now.Sub(h.begun) < h.length }

func (h *hold) state(now time.Time) stats.Guard {
	switch {
	case h.missing == 0:
		return stats.Guard{Share: 1}
	case !h.pausing(now):
		return stats.Guard{Share: 1 - h.missing, Since: h.since, Reason: stats.GuardExhausted}
	case h.length < minCount:
		return stats.Guard{Since: h.since, Reason: stats.GuardExhausted}
	}
	return stats.Guard{Since: h.since, Reason: stats.GuardCounting}
}

// exhausted notes a RESOURCE_EXHAUSTED, and reports whether hedges may be its cause. alone: a hedge failed and its primary did
// not. Hedges are held back if it is a sign, and one of its own.
func (h *hold) exhausted(now time.Time, calls float64, alone, own bool) bool {
	h.seen.note(now, calls, rateWindow)
	h.expected.rate = min(h.expected.rate, h.seen.share())
	pausing, since := h.pausing(now), now.Sub(h.begun)
	switch {
	case pausing && since > settle:
		h.failures++
		h.length = max(h.length, min(since+shortPause, minCount))
		return false
	case !pausing && !within(now, h.sent, settle):
		return false
	case !pausing && h.expected.credit >= 1:
		h.expected.credit--
		return false
	}
	h.noted.note(now, calls, signWindow)
	if !own || !alone && h.missing == 0 && h.noted.failures < signFailures && since > suspectedFor {
		return true
	}
	recovery := max(h.recovery, minRecovery)
	if pausing {
		h.length = max(h.length, since+shortPause)
	} else {
		if recovery = min(2*recovery, maxRecovery); h.missing == 0 && since > recovery {
			recovery = minRecovery
		}
		h.begun, h.length, h.failures, h.first, h.counted = now, shortPause, 0, calls, false
		if since <= maxCount {
			h.length = min(max(2*since, minCount), maxCount)
		}
	}
	if h.missing == 0 {
		h.since = now
	}
	h.missing, h.recovery = min(1-(1-h.missing)*math.Exp2(-h.noted.failures), 1-minSent), recovery
	h.noted.failures = 0
	h.watching.Store(true)
	return true
}

// advance brings everything to now: what has grown since the last time, and pauses and trials that have ended.
func (h *hold) advance(now time.Time, calls float64) {
	if !now.After(h.last) {
		return
	}
	h.expected.credit = min(h.expected.credit+expectedTimes*h.expected.rate*max(0, calls-h.calls), h.expected.depth)
	after := now.Sub(h.begun) - h.length // the pause
	h.missing = max(h.missing-min(now.Sub(h.last), max(after, 0)).Seconds()/max(h.recovery, 1).Seconds(), 0)
	if after >= 0 && h.length >= minCount && !h.counted {
		// The calls of the pause, without the time that did not count. Nobody looked when it ended.
		during := (calls - h.first) * (h.length - settle).Seconds() / now.Sub(h.begun).Seconds()
		h.expected.rate = (h.failures + math.Sqrt(h.failures)/2) / max(during, 1) // with half a standard deviation
		h.expected.credit, h.expected.depth, h.counted = min(h.failures, minDepth/4), max(minDepth, 2*h.failures), true
	}
	h.watching.Store(h.missing > 0)
	h.last, h.calls = now, calls
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
