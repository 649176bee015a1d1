// Package guard holds hedges back where a server limits them: a [Guard] where hedges use up a rate
// limit that other calls need, [Resets] where a server counts the resets of losers, and [Throttle]
// where many attempts fail.
// docs/guard.md describes the guard.
package guard

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Shared is the state that the methods of one target share. The zero Shared has seen no failure.
type Shared struct {
	mu    sync.Mutex
	whole hold
	by    *Guard    // the method with the latest RESOURCE_EXHAUSTED that hedges may have caused
	at    time.Time // when it came
}

// Guard decides which share of one method's hedges may be sent. It is safe for concurrent use. The
// zero Guard admits every hedge. Target must be set before the first use.
type Guard struct {
	Target  *Shared // Target.mu guards own
	tickets sketch.Draws
	own     hold
}

// Traffic is the total number of calls of the method, and of its target, in which a costly call may
// count as several.
type Traffic struct{ Method, Target float64 }

// Ticket is the number from 0 to 1 that a hedge has drawn. The hedge may be sent if the number is below
// the share. The zero Ticket has not been drawn.
type Ticket struct {
	drawn bool
	value float64
}

// Admit reports whether a hedge may be sent at now. A hedge that is retried keeps its ticket k.
func (m *Guard) Admit(now time.Time, t Traffic, k *Ticket) bool {
	if !m.own.watching.Load() && !m.Target.whole.watching.Load() {
		return true
	}
	share := m.State(now, t).Share
	if share < 1 && !k.drawn {
		*k = Ticket{true, m.tickets.Next()}
	}
	return share >= 1 || k.value < share
}

// State returns the share at now, with the reason and the start of a reduction: the method's or the
// target's, whichever is lower.
func (m *Guard) State(now time.Time, t Traffic) stats.Guard {
	whole := m.lock(now, t)
	defer m.Target.mu.Unlock()
	g, of := m.own.state(now), whole.state(now)
	if of.Share < g.Share {
		return of
	}
	return g
}

// lock locks m.Target.mu, advances the method and the target to now, and returns the target's hold.
func (m *Guard) lock(now time.Time, t Traffic) *hold {
	m.Target.mu.Lock()
	m.own.advance(now, t.Method)
	m.Target.whole.advance(now, t.Target)
	return &m.Target.whole
}

func (m *Guard) Sent(now time.Time) {
	m.Target.mu.Lock()
	m.own.sent, m.Target.whole.sent = now, now
	m.Target.mu.Unlock()
}

// Exhausted reports that an attempt failed with RESOURCE_EXHAUSTED at now. alone marks a hedge of a
// primary that did not fail with it. If both failed, Exhausted must be called once, with false.
func (m *Guard) Exhausted(now time.Time, t Traffic, alone bool) {
	whole := m.lock(now, t)
	defer m.Target.mu.Unlock()
	by, at := m.Target.by, m.Target.at
	caused := m.own.exhausted(now, t.Method, alone, true)
	if caused {
		m.Target.by, m.Target.at = m, now
	}
	twoFailed := caused && by != m && within(now, at, settle)
	whole.exhausted(now, t.Target, alone, twoFailed)
}

// within reports whether t was at most d before now. It is false for the zero t.
func within(now, t time.Time, d time.Duration) bool { return !t.IsZero() && now.Sub(t) <= d }

const (
	recovery      = 30 * time.Second // of the share from 0 to 1, after a pause
	settle        = 10 * time.Second // for which a hedge may cause failures; the shortest pause is half of it
	signFailures  = 10               // failures within about settle that are a sign against hedges
	minCount      = time.Minute      // shortest pause that counts failures
	maxCount      = 6 * time.Minute  // longest pause; after a sign, the time in which one failure is a sign
	expectedTimes = 1.25             // ratio of the expected rate to the rate in pauses
	rateWindow    = 30 * time.Minute // memory of the failures that lower the expected rate
)

// hold is the share of hedges of a method, or of a whole target, that RESOURCE_EXHAUSTED leaves.
// The zero hold has seen no failure. Shared.mu guards every field but watching.
type hold struct {
	watching   atomic.Bool // false: every hedge passes
	sent, last time.Time   // the last hedge; the last advance
	calls      float64     // at the last advance

	missing float64 // 1 minus the share
	since   time.Time

	// Failures in a pause of minCount or more are not due to hedges. They set the expected rate,
	// and an expected failure has no effect: see docs/guard.md.
	noted, seen           frequency // unexplained failures; all failures
	begun                 time.Time // start of the last pause, which is a sign
	length                time.Duration
	failures, callsBefore float64                               // failures in the pause; calls before it
	counted               bool                                  // the pause has set the expected rate
	expected              struct{ rate, credit, depth float64 } // failures per call, saved, and saved at most
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

// exhausted records a RESOURCE_EXHAUSTED and reports whether hedges may be its cause. alone marks a
// failure of a hedge without one of its primary. A failure can be a sign only if mayPause is set. A sign
// begins a pause, or lowers the share further in its first settle.
func (h *hold) exhausted(now time.Time, calls float64, alone, mayPause bool) bool {
	h.seen.note(now, calls, rateWindow)
	h.expected.rate = min(h.expected.rate, h.seen.failures/max(1, h.seen.calls))
	pausing, since := h.pausing(now), now.Sub(h.begun)
	switch {
	case pausing && since > settle:
		h.failures++
		return false
	case !pausing && !within(now, h.sent, settle):
		return false
	case !pausing && h.expected.credit >= 1:
		h.expected.credit--
		return false
	}
	h.noted.note(now, calls, settle)
	if !mayPause || !alone && h.missing == 0 && h.noted.failures < signFailures && since > maxCount {
		return true
	}
	if !pausing {
		h.begun, h.length, h.failures, h.callsBefore, h.counted = now, settle/2, 0, calls, false
		if since <= maxCount { // long enough to count the failures of one interval between signs
			h.length = min(max(since+2*settle, minCount), maxCount)
		}
	}
	if h.missing == 0 {
		h.since = now
	}
	h.missing, h.noted.failures = 1-(1-h.missing)*math.Exp2(-h.noted.failures), 0
	h.watching.Store(true)
	return true
}

// advance brings h to now: the share recovers, expected failures accrue, and a pause may end.
func (h *hold) advance(now time.Time, calls float64) {
	if !now.After(h.last) {
		return
	}
	h.expected.credit = min(h.expected.credit+expectedTimes*h.expected.rate*max(0, calls-h.calls), h.expected.depth)
	after := now.Sub(h.begun) - h.length // since the end of the pause
	h.missing = max(h.missing-min(now.Sub(h.last), max(after, 0)).Seconds()/recovery.Seconds(), 0)
	if after >= 0 && h.length >= minCount && !h.counted {
		// The calls of the counted part of the pause, assuming a steady rate: advance may run much
		// later.
		during := (calls - h.callsBefore) * (h.length - settle).Seconds() / now.Sub(h.begun).Seconds()
		h.expected.rate = h.failures / max(during, 1)
		h.expected.credit, h.expected.depth, h.counted = min(h.failures, signFailures/2), 2*h.failures, true
	}
	h.watching.Store(h.missing > 0)
	h.last, h.calls = now, calls
}

// frequency is the recent share of calls that failed, with exponentially fading memory, as of the
// last failure.
type frequency struct {
	failures, calls, lastCalls float64
	last                       time.Time
}

// note records a failure. A failure of age memory counts 1/e.
func (f *frequency) note(now time.Time, calls float64, memory time.Duration) {
	gap := max(now.Sub(f.last), 0).Seconds() / memory.Seconds()
	f.calls = f.calls*math.Exp(-gap) + max(0, calls-f.lastCalls)*min(1, 1/gap)
	f.failures, f.last, f.lastCalls = f.failures*math.Exp(-gap)+1, now, calls
}
