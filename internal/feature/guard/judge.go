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
)

// judge decides about the hedges of a method, or of a target as a whole. The zero judge has seen nothing.
type judge struct {
	watching atomic.Bool // false: every hedge passes

	last  time.Time
	calls float64 // at that time

	missing  float64 // what the share has lost
	recovery time.Duration
	since    time.Time
	why      Reason
	full     time.Time // when the share was whole again

	quota quota
	trial trial
}

// Reason is why hedges are held back.
type Reason uint8

const (
	// None: they are not.
	None Reason = iota
	// Exhausted: hedges failed with RESOURCE_EXHAUSTED.
	Exhausted
	// Baseline: the same, and no hedge is sent until it is known how often that comes without hedges.
	Baseline
	// Guilty: calls failed more often with hedges than without.
	Guilty
	// Testing: calls fail, and short periods without hedges show whether hedges cause it.
	Testing
)

// String is a sentence; "" for None.
func (r Reason) String() string {
	switch r {
	case Exhausted:
		return "hedges failed with RESOURCE_EXHAUSTED, so fewer are sent; their share grows back within minutes"
	case Baseline:
		return "hedges failed with RESOURCE_EXHAUSTED, and none is sent for some minutes, to count how often calls fail so without"
	case Guilty:
		return "more calls failed with hedges than without, so fewer hedges are sent; their share grows back within minutes"
	case Testing:
		return "calls fail, and short periods without hedges show whether hedges are the reason"
	}
	return ""
}

// share returns the share of due hedges that may be sent at now.
func (j *judge) share(now time.Time) float64 {
	if now.Before(j.quota.until) || j.trial.quiet(now) {
		return 0
	}
	return 1 - j.missing
}

// state returns what the judge does at now, and why. The sentence is not written yet.
func (j *judge) state(now time.Time) (stats.Guard, Reason) {
	g, why := stats.Guard{Share: j.share(now), Since: j.since}, j.why
	switch {
	case j.missing == 0 && j.trial.running:
		g.Since, why = j.trial.since, Testing
	case now.Before(j.quota.until) && j.quota.until.Sub(j.quota.begun) >= minCount:
		why = Baseline
	}
	return g, why
}

// exhausted takes note of a RESOURCE_EXHAUSTED, and reports whether it was unexpected. caused says that a hedge was sent shortly
// before, alone that a hedge failed and its primary did not. Unless may is set, hedges are not held back for it.
func (j *judge) exhausted(now time.Time, calls float64, caused, may, alone bool) bool {
	if j.quota.explains(now, caused) {
		return false
	}
	n := j.quota.note(now)
	if sign := alone || j.missing > 0 || n >= many || within(now, j.quota.sign, suspicion); !sign || !may {
		return true
	}
	if j.quota.paused(now) {
		j.quota.goOn(now)
	} else {
		j.slower(now)
		j.quota.pause(now, calls)
	}
	j.reduce(now, 1-(1-j.missing)*math.Exp2(-n), Exhausted)
	return true
}

// slower makes the share grow back more slowly if it was whole for a short time only.
func (j *judge) slower(now time.Time) {
	if j.missing > 0 || within(now, j.full, j.recovery) {
		j.recovery = min(2*j.recovery, maxRecovery)
	} else {
		j.recovery = minRecovery
	}
}

func (j *judge) reduce(now time.Time, missing float64, why Reason) {
	if j.missing == 0 || j.why != why {
		j.since = now
	}
	j.missing, j.why = min(missing, 1-least), why
	j.watching.Store(true)
}

// failed takes note of a failed call.
func (j *judge) failed(now time.Time, calls float64) {
	j.trial.failed(now, calls)
	if j.trial.running {
		j.watching.Store(true)
	}
}

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
	if j.trial.advance(now, now.Before(j.quota.until)) {
		j.recovery = maxRecovery
		j.reduce(now, 1, Guilty)
	}
	j.watching.Store(j.missing > 0 || j.trial.running)
	j.last, j.calls = now, calls
}

// grow adds what the share has gained since the last time.
func (j *judge) grow(now time.Time) {
	from := later(j.last, j.quota.until)
	if j.missing == 0 || !now.After(from) {
		return
	}
	whole := from.Add(time.Duration(j.missing * float64(j.recovery)))
	j.missing -= now.Sub(from).Seconds() / j.recovery.Seconds()
	if !whole.After(now) {
		j.missing, j.why, j.full = 0, None, whole
	}
}
