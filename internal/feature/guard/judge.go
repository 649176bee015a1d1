package guard

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/stats"
)

const (
	// The share grows back from 0 to 1 in minRecovery. If a sign comes again while it grows, or soon after, that takes twice as
	// long, up to maxRecovery.
	minRecovery, maxRecovery = 45 * time.Second, 8 * time.Minute
	// least is what is left of the share, however often it was reduced.
	least = 1.0 / 64
	// settle is how long after a hedge a RESOURCE_EXHAUSTED may still be caused by it.
	settle = 10 * time.Second
)

// judge decides about the hedges of a method, or of a target as a whole. The zero judge has seen nothing.
type judge struct {
	watching atomic.Bool // false: every hedge passes

	sent  time.Time // the last hedge
	last  time.Time
	calls float64 // at that time

	missing  float64 // what the share has lost
	recovery time.Duration
	since    time.Time
	why      stats.GuardReason
	full     time.Time // when the share was whole again

	quota quota
	trial trial
}

// share returns the share of due hedges that may be sent at now.
func (j *judge) share(now time.Time) float64 {
	if j.quota.pause.on(now) || j.trial.quiet(now) {
		return 0
	}
	return 1 - j.missing
}

func (j *judge) state(now time.Time) stats.Guard {
	g := stats.Guard{Share: j.share(now), Since: j.since, Reason: j.why}
	switch {
	case j.missing == 0 && j.trial.running:
		g.Since, g.Reason = j.trial.since, stats.GuardTesting
	case j.quota.pause.on(now) && j.quota.pause.length() >= minCount:
		g.Reason = stats.GuardCounting
	}
	return g
}

// unexplained notes a RESOURCE_EXHAUSTED, and reports whether hedges may be its cause.
func (j *judge) unexplained(now time.Time) bool {
	return j.quota.unexplained(now, within(now, j.sent, settle))
}

// suspect holds hedges back if an unexplained RESOURCE_EXHAUSTED is a sign. alone: a hedge failed and its primary did not.
func (j *judge) suspect(now time.Time, calls float64, alone bool) {
	q, noted := &j.quota, j.quota.noted
	if !alone && j.missing == 0 && noted < many && !within(now, q.pause.begun, suspicion) {
		return
	}
	if q.pause.on(now) {
		q.pause.until, q.noted = later(q.pause.until, now.Add(shortPause)), 0
	} else {
		if j.missing > 0 || within(now, j.full, j.recovery) { // the share was whole for a short time only
			j.recovery = min(2*j.recovery, maxRecovery)
		} else {
			j.recovery = minRecovery
		}
		q.begin(now, calls)
	}
	j.reduce(now, 1-(1-j.missing)*math.Exp2(-noted), stats.GuardExhausted)
}

func (j *judge) reduce(now time.Time, missing float64, why stats.GuardReason) {
	if j.missing == 0 || j.why != why {
		j.since = now
	}
	j.missing, j.why = min(missing, 1-least), why
	j.watch()
}

func (j *judge) watch() { j.watching.Store(j.missing > 0 || j.trial.running) }

// advance brings everything to now: what has grown since the last time, and pauses and trials that have ended.
func (j *judge) advance(now time.Time, calls float64) {
	if j.last.IsZero() {
		j.last, j.calls = now, calls
	}
	if !now.After(j.last) {
		return
	}
	if j.quota.advance(now, calls, max(0, calls-j.calls)) {
		j.recovery = max(j.recovery/2, minRecovery) // failures went on without hedges
	}
	j.grow(now)
	j.trial.reduced = j.missing > 0
	if j.trial.advance(now, j.quota.pause.on(now)) {
		j.recovery = maxRecovery
		j.reduce(now, 1, stats.GuardGuilty)
	}
	j.watch()
	j.last, j.calls = now, calls
}

// grow adds what the share has gained since the last time.
func (j *judge) grow(now time.Time) {
	from := later(j.last, j.quota.pause.until)
	if j.missing == 0 || !now.After(from) {
		return
	}
	whole := from.Add(time.Duration(j.missing * float64(j.recovery)))
	j.missing -= now.Sub(from).Seconds() / j.recovery.Seconds()
	if !whole.After(now) {
		j.missing, j.why, j.full = 0, stats.GuardNone, whole
	}
}
