package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/stats"
)

// limit holds hedges back by the state of a method or a target: see limitsOf. It keeps nothing for
// a call.
type limit interface {
	// take adds the hedge's share of the limit to the hedge's claim, or returns why the hedge is not
	// sent.
	take(d *due) (race.Event, stats.Reason)
	// giveBack gives back a share of a hedge that was not sent, or that its server turned away.
	giveBack(s share, turnedAway bool)
	// ended records the end of an attempt: see attemptEnd.
	ended(e attemptEnd)
}

// limitsOf returns the limits on attempts of a leg, in the order in which a hedge takes from them.
// The first one is the throttle: see forbidden. The loser of a hedge may be at the call's own
// target or on the leg, so each needs a reset.
func limitsOf(c *Call, leg *Leg) []limit {
	limits := append(make([]limit, 0, 6), throttle{leg.settings.Throttle}, guarded{leg.method},
		resets{&c.method.Target.Resets})
	if there := leg.method.Target; there != c.method.Target {
		limits = append(limits, resets{&there.Resets})
	}
	for _, b := range c.budgets {
		if b != nil {
			limits = append(limits, bucket{b})
		}
	}
	return limits
}

// take takes the hedge's shares of its limits, but for the throttle, which forbidden has asked. If
// a limit refuses, take gives the shares of the others back.
func (d *due) take() (race.Event, stats.Reason) {
	if d.claim == nil {
		d.claim = make(claim, 0, 4)
	}
	for _, l := range limitsOf(d.Call, d.leg)[1:] {
		if e, why := l.take(d); e.Kind != race.Admitted {
			d.claim.settle(false)
			return e, why
		}
	}
	return admitted, stats.NoReason
}

// share is what a hedge has taken from one limit.
type share struct {
	of    limit
	saved bool // a budget paid from its savings
}

// claim has the shares of one hedge. It ends exactly once: the claim of a hedge that is sent is
// spent, unless the hedge is turned away; settle ends any other claim.
type claim []share

// settle gives the claim back.
func (k *claim) settle(turnedAway bool) {
	for _, s := range *k {
		s.of.giveBack(s, turnedAway)
	}
	*k = (*k)[:0]
}

// attemptEnd is the end of attempt n of a call, for the limits. A failure is passed to them twice:
// before the next hedge is considered, or at the end of the race, with over unset; and once the race is
// over, with over set. The winner is passed once, with over set. An attempt that was in flight when
// another one won is not passed.
type attemptEnd struct {
	race.Event
	call *Call
	n    int
	race *race.State // nil if the attempt is the only one
	over bool        // the race is over
	won  bool        // over: hedge n has answered the call, and no hedge was due because of a failure
}

// noteEnd passes the end of an attempt to its limits.
func noteEnd(e attemptEnd) {
	for _, l := range limitsOf(e.call, e.call.LegOf(e.n)) {
		l.ended(e)
	}
}

// countFailures counts the attempts that have failed since its last call, and refunds hedges that were
// turned away, or admitted and not sent.
func countFailures(c *Call, r *race.State) {
	for n := range r.Hedges + 1 {
		a := &r.Attempts[n]
		if a.Err == nil || a.CutShort || ensureAttempts(c)[n].counted || goneBefore(c, r, n) {
			continue
		}
		c.attempts[n].counted = true
		countFailure(c, n, a.Event)
		switch {
		case a.TurnedAway(): // the next hedge is due at once
			c.method.Counters.Update(func(s *stats.Counts) { s.TurnedAway++ })
			c.settings.Groups.TurnedAway(c.group, time.Now())
			c.attempts[n].claim.settle(true) // the attempt has ended, and is not reset
		case a.Pushback != race.NoPushback:
			reportHeldBack(c, r.Hedges+1, stats.PushedBack)
		}
	}
	settleUnsent(c, r.Hedges)
}

// countFailure counts a failed attempt.
func countFailure(c *Call, n int, e race.Event) {
	noteEnd(attemptEnd{Event: e, call: c, n: n})
	if e.Pushback != race.NoPushback {
		c.method.Counters.Update(func(s *stats.Counts) { s.PushedBack++ })
	}
}

// settleUnsent settles the claims of hedges that were admitted and not sent, when sent hedges were.
func settleUnsent(c *Call, sent int) {
	if c.attempts != nil {
		for n := sent + 1; n < race.MaxAttempts; n++ {
			c.attempts[n].claim.settle(false)
		}
	}
}

// noteEnds passes each failure and the winner of a race that is over to the limits. won reports whether
// a hedge has won.
func noteEnds(c *Call, r *race.State, won bool) {
	won = won && r.Failovers == 0 // a failover that wins shows nothing about the hedges of slow calls
	for n := range r.Hedges + 1 {
		if a := &r.Attempts[n]; n == r.Winner || a.Err != nil && !a.CutShort {
			noteEnd(attemptEnd{Event: a.Event, call: c, n: n, race: r, over: true, won: won && n == r.Winner})
		}
	}
}

// throttle is the throttle of a leg's target: no hedges while many attempts fail.
type throttle struct{ *guard.Throttle }

func (t throttle) take(d *due) (race.Event, stats.Reason) {
	if t.Throttle != nil && t.Throttles(d.now, d.leg != &d.Leg) {
		return refuse(stats.Throttled)
	}
	return admitted, stats.NoReason
}

func (throttle) giveBack(share, bool) {}

// ended counts a failure at once. A final status is no failure unless the server wants no further
// attempt. Call.End counts successes.
func (t throttle) ended(e attemptEnd) {
	if t.Throttle != nil && !e.over && (e.End == race.NonFatal || e.Pushback == race.PushbackNever) {
		t.Failed()
	}
}

// guarded is the guard of a leg's method: hedges use up a rate limit. Call.Sent counts the hedges.
type guarded struct{ *registry.Method }

func (g guarded) take(d *due) (race.Event, stats.Reason) {
	if d.settings.Guard && !d.budgets.Free() && !d.race.OnlyHope() &&
		!g.Guard.Admit(d.now, g.Traffic(), &d.ticket) {
		return d.holdBack(stats.Guarded)
	}
	return admitted, stats.NoReason
}

func (guarded) giveBack(share, bool) {}

// ended reports RESOURCE_EXHAUSTED once the race is over, because a failure of a hedge alone means
// more: see [guard.Guard.Exhausted]. Of the attempts at a method, the first one counts.
func (g guarded) ended(e attemptEnd) {
	if !e.over || !e.call.settings.Guard || !exhausts(e.n, e.Event) {
		return
	}
	for n := range e.n {
		if a := &e.race.Attempts[n]; !a.CutShort && exhausts(n, a.Event) && e.call.LegOf(n).method == g.Method {
			return
		}
	}
	g.Guard.Exhausted(time.Now(), g.Traffic(), e.n > 0)
}

// exhausts reports whether attempt n ended with RESOURCE_EXHAUSTED, and is not a hedge that its
// server turned away with a pushback.
func exhausts(n int, e race.Event) bool {
	return e.Exhausted && (n == 0 || e.Pushback == race.NoPushback)
}

// resets is the limit of resets of a target, by WithHedgeLimit or by the cuts of its connections.
// The only attempt in flight makes no loser.
type resets struct{ *guard.Resets }

func (r resets) take(d *due) (race.Event, stats.Reason) {
	switch {
	case d.cause == race.Cut:
		return admitted, stats.NoReason
	case !r.Admit(d.now):
		return d.holdBack(stats.ResetsSpent)
	}
	d.claim = append(d.claim, share{of: r})
	return admitted, stats.NoReason
}

func (r resets) giveBack(share, bool) { r.Refund() }

// ended does nothing: Call.Failure has recorded the cut, because the verdict depends on it.
func (resets) ended(attemptEnd) {}

// bucket is a budget that pays for hedges.
type bucket struct{ *budget.Bucket }

// take takes the price. To rescue a call, the budget may borrow it.
func (b bucket) take(d *due) (race.Event, stats.Reason) {
	keep, until := d.keep()
	paid, saved := b.Pay(d.now, keep)
	switch {
	case paid || d.cause == race.Cut && b.Borrow(d.now):
		d.claim = append(d.claim, share{b, saved})
		return admitted, stats.NoReason
	case keep > 0: // a slower call may need the tokens
		return holdUntil(min(retryAt(d.age, d.Delay), until))
	}
	return d.holdBack(stats.BudgetExhausted)
}

// giveBack gives the price back; of a hedge that its server turned away, all but a tenth.
func (b bucket) giveBack(s share, turnedAway bool) { b.Refund(s.saved, turnedAway) }

// ended counts a win, for which savings are kept.
func (b bucket) ended(e attemptEnd) {
	if e.won {
		b.Hedged(true)
	}
}

// keep returns the share of the budget's reserve that must remain, and the age at which that share
// becomes 0. The first hedge of a plan keeps all of the reserve at the delay, and nothing at twice
// the delay, or shortly before the deadline is too near: when tokens are few, the slowest calls get
// them.
func (d *due) keep() (share float64, until time.Duration) {
	if d.n > 1 || d.cause != race.Slow || d.estimate == nil || !d.settings.Auto {
		return 0, 0
	}
	until = min(2*d.Delay, d.latest())
	if deadline, ok := d.Context.Deadline(); ok {
		until = min(until, deadline.Sub(d.Start)-median(d.Call, d.n, d.now)-d.Delay/8)
	}
	if d.age >= until {
		return 0, until
	}
	return min(float64(until-d.age)/float64(until-d.Delay), 1), until
}
