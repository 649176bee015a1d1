// Package guard holds hedges back where they make calls fail: where they use up a rate limit that other calls need, or load
// a server that cannot bear it. It decides by what happens, and needs no setting.
//
// There are two signs. RESOURCE_EXHAUSTED says itself that something is used up. Each such failure halves the share of the
// budget that hedges may use, and stops hedges for five seconds. The share grows back by a tenth a minute. So it finds by
// itself how much the server can spare, as TCP does. Where such failures come without hedges too, they are expected at that
// rate, and only more of them count: see baseline.
//
// Any other failure says nothing about hedges. So if calls fail, short periods without a hedge show whether fewer calls fail
// in them: see trial.
package guard

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// recovery is how long the share takes to grow from 0 to 1.
	recovery = 10 * time.Minute
	// least is what is left of the share, however often it was reduced.
	least = 1.0 / 64
	// pause is how long no hedge is sent after a RESOURCE_EXHAUSTED, so that the server's limit recovers.
	pause = 5 * time.Second
	// After a verdict of a trial the share grows to half of what it was. For a time it stays there: for ceiling, and twice as
	// long after each further verdict, maxLonger times as long at most. A verdict is remembered for probation after that.
	ceiling   = 30 * time.Minute
	maxLonger = 16
	probation = 2 * time.Hour
)

// Guard says whether a hedge may be sent as far as failures go. Its methods may be called concurrently. The zero Guard has
// seen no failure, and lets every hedge pass.
//
// Times are passed in. One that is before the latest counts as the latest.
type Guard struct {
	watching atomic.Bool // false: every hedge passes

	mu         sync.Mutex
	last       time.Time
	lastEarned float64

	share    float64 // of the budget; meaningful while reduced
	reduced  bool    // the share is below 1
	since    time.Time
	why      Reason
	top      float64 // of the share, until topUntil
	topUntil time.Time
	longer   time.Duration // how many times ceiling the last top lasts

	quietUntil time.Time // no hedge before
	allowance  float64   // hedges, while the share is below 1

	baseline baseline
	trial    trial
}

// Budget is what pays for the hedges of the target. What its calls have earned is the measure of traffic here.
type Budget interface {
	// Earned returns how many hedges calls have paid for so far. It never falls.
	Earned() float64
	// Burst returns the most hedges that are paid for at once.
	Burst(now time.Time) float64
}

// Reason is why the guard holds hedges back.
type Reason uint8

const (
	// None: it does not.
	None Reason = iota
	// Exhausted: attempts failed with RESOURCE_EXHAUSTED.
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
		return "attempts failed with RESOURCE_EXHAUSTED, so fewer hedges are sent; their share of the budget grows by a tenth a minute"
	case Baseline:
		return "attempts failed with RESOURCE_EXHAUSTED, and no hedge is sent until it is known how often they do without hedges"
	case Guilty:
		return "more calls failed with hedges than without, so fewer hedges are sent; their share of the budget grows over minutes and hours"
	case Testing:
		return "calls fail, and short periods without hedges show whether hedges are the reason"
	}
	return ""
}

// State is what the guard does.
type State struct {
	Share  float64 // of the budget that hedges may use now, 0 to 1
	Since  time.Time
	Reason Reason
}

// Admits reports whether a hedge may be sent at now, and takes it from what the share allows.
func (g *Guard) Admits(now time.Time, b Budget) bool {
	if !g.watching.Load() {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(now, b.Earned())
	if g.reduced {
		g.allowance = min(g.allowance, max(1, g.share*b.Burst(now)))
	}
	switch {
	case g.quiet(now):
		return false
	case !g.reduced:
		return true
	case g.allowance < 1:
		return false
	}
	g.allowance--
	return true
}

// GiveBack returns what Admits took for a hedge that was not sent.
func (g *Guard) GiveBack() {
	if g.watching.Load() {
		g.mu.Lock()
		g.allowance++
		g.mu.Unlock()
	}
}

// Exhausted says that an attempt failed with RESOURCE_EXHAUSTED at now.
func (g *Guard) Exhausted(now time.Time, b Budget) {
	g.mu.Lock()
	defer g.mu.Unlock()
	earned := b.Earned()
	g.advance(now, earned)
	if !g.baseline.exhausted(now, earned) {
		return
	}
	g.reduceTo(now, g.current()/2, Exhausted)
	if until := g.baseline.counting(); until.After(g.quietUntil) {
		g.quietUntil, g.why = until, Baseline
	} else {
		g.quietUntil = later(g.quietUntil, now.Add(pause))
	}
}

// Failed says that a call failed at now, as its caller saw it, with whatever error but a cancellation by the caller.
func (g *Guard) Failed(now time.Time, b Budget) {
	g.mu.Lock()
	defer g.mu.Unlock()
	earned := b.Earned()
	g.advance(now, earned)
	g.trial.failed(now, earned)
	if g.trial.running {
		g.watching.Store(true)
	}
}

// State returns what the guard does at now.
func (g *Guard) State(now time.Time, b Budget) State {
	if !g.watching.Load() {
		return State{Share: 1}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(now, b.Earned())
	s := State{Share: g.current(), Since: g.since, Reason: g.why}
	if g.quiet(now) {
		s.Share = 0
	}
	if !g.reduced && g.trial.running {
		s.Since, s.Reason = g.trial.since, Testing
	}
	return s
}

// current is the share in force: 1 if it was not reduced.
func (g *Guard) current() float64 {
	if g.reduced {
		return g.share
	}
	return 1
}

// quiet reports whether no hedge may be sent at now.
func (g *Guard) quiet(now time.Time) bool {
	return now.Before(g.quietUntil) || g.trial.quiet(now)
}

func (g *Guard) reduceTo(now time.Time, share float64, why Reason) {
	if !g.reduced {
		g.allowance = 0
		g.since = now
	}
	g.reduced, g.share, g.why = true, max(share, least), why
	g.watching.Store(true)
}

// advance brings everything to now: what has grown since the last time, and trials that have ended.
func (g *Guard) advance(now time.Time, earned float64) {
	if g.last.IsZero() {
		g.last, g.lastEarned = now, earned
		return
	}
	if !now.After(g.last) {
		return
	}
	e := max(0, earned-g.lastEarned)
	g.baseline.advance(now, earned, e)
	g.quietUntil = later(g.quietUntil, g.baseline.counting())
	if g.reduced {
		g.grow(now, e)
	}
	if !now.Before(g.quietUntil) && g.why == Baseline {
		g.why = Exhausted
	}
	g.trial.reduced = g.reduced
	if g.trial.advance(now, g.onProbation(now), now.Before(g.quietUntil)) {
		g.guilty(now)
	}
	if !g.reduced && !g.trial.running {
		g.watching.Store(false)
	}
	g.last, g.lastEarned = now, earned
}

// grow adds what the share and the allowance have gained since the last time, in which e was earned.
func (g *Guard) grow(now time.Time, e float64) {
	if !now.After(g.quietUntil) {
		return
	}
	gained := now.Sub(later(g.last, g.quietUntil))
	g.allowance += g.share * e * gained.Seconds() / now.Sub(g.last).Seconds()
	g.share += gained.Seconds() / recovery.Seconds()
	if now.Before(g.topUntil) {
		g.share = min(g.share, g.top)
	}
	if g.share >= 1 {
		g.reduced, g.why = false, None
	}
}

// guilty follows a verdict of the trial.
func (g *Guard) guilty(now time.Time) {
	if g.onProbation(now) {
		g.longer = min(2*g.longer, maxLonger)
	} else {
		g.longer = 1
	}
	g.top, g.topUntil = g.current()/2, now.Add(g.longer*ceiling)
	g.reduceTo(now, least, Guilty)
	g.since = now
}

func (g *Guard) onProbation(now time.Time) bool {
	return !g.topUntil.IsZero() && now.Before(g.topUntil.Add(probation))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
