package engine

import (
	"context"
	"github.com/grpchedge/hedge/internal/codeset"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/wire"
	"github.com/grpchedge/hedge/stats"
)

// Call is one RPC in the engine's books, from Begin to its end. It says when its hedges are due and whether each may be
// sent, and books how its attempts ended. The zero Call is never hedged.
//
// If Plan returns false, make the call normally. Otherwise race attempts by the plan, with the call as the race's policy. Report
// the end with End: of a race that was not untouched, Book does.
type Call struct {
	engine   *Engine
	method   *method
	settings *terms // those in force when it began
	ctx      context.Context
	conn     Conn
	start    time.Time

	armed     bool
	dry       bool // it would be armed but for WithDryRun
	unlearned bool // nothing is learned from this call
	delay     time.Duration
	estimate  *learn.Estimate // what the delay was taken from; nil if it was not learned

	payment payment // pays for its hedges

	turn     int  // hedges considered so far, including those skipped by sampling
	drawn    bool // the last of them is to be sent
	ticketOf int  // the hedge whose ticket for the guard it has
	ticket   float64
	dropped  uint8               // hedges paid for that have been given back
	heldBack stats.Reason        // why it was held back last, so that a reason counts once for a hedge
	why      stats.Reason        // why the last hedge that was due was not sent, or why none can be; for whoever asks
	report   func(stats.Outcome) // of hedge.Report; nil: none
	winner   uint8               // the attempt that decided the call

	credited       bool  // a success has been counted for the throttle
	failures       uint8 // attempts whose failures have been counted for the throttle, a bit each
	tracksFailures bool  // there is a policy or a throttle

	offWire  bool // its attempts are no streams of its target's connections
	detached bool // it was to run detached

	class  *class        // of its request; nil: none
	group  membership    // for comparison
	record *place.Record // where its attempts have been; nil where no policy asks
}

// retryFloor is the least time after which a hedge that was held back is considered again: timers are not much
// more precise.
const retryFloor = 250 * time.Microsecond

// arm makes the call one that may be hedged, and has it pay its share into the budget.
func (c *Call) arm(delay time.Duration) {
	if !c.unbudgeted() { // what costs nothing must not pay for others
		c.payment.earn(c.start)
	}
	if c.maxHedges() > 0 && (c.settings.learning.BudgetPercent > 0 || c.unbudgeted()) {
		c.dry = c.settings.DryRun
		c.armed, c.delay = !c.dry, min(delay, race.Longest)
		if c.armed {
			c.group = c.settings.groups.draw()
			c.armed = c.group != unhedgedGroup
		}
		switch {
		case c.dry:
			c.why = stats.DryRun
		case !c.armed:
			c.why = stats.InControlGroup
		}
	} else {
		c.why = stats.NoHedgesConfigured
	}
}

// maxHedges is the most hedges that the call can have.
func (c *Call) maxHedges() int {
	switch {
	case c.settings.policy != nil:
		return c.settings.policy.Hedges
	case c.estimate != nil:
		return min(c.estimate.Hedges, c.settings.MaxHedges)
	}
	return c.settings.MaxHedges
}

// unbudgeted reports whether the call's hedges cost nothing: the budget pays for more than a hedgingPolicy can send.
func (c *Call) unbudgeted() bool {
	return c.settings.policy != nil && c.settings.learning.BudgetPercent >= settings.MaxBudgetPercent
}

// Plan is when the call's hedges are due, and by which rules its attempts race; false if it gets no hedge.
func (c *Call) Plan() (race.Plan, bool) {
	c.reportUnhedged()
	if !c.armed {
		return race.Plan{}, false
	}
	c.detached = !c.offWire && c.method.target.resets.Low(c.start)
	return race.Plan{
		Rules: race.Rules{
			Delay:            c.delay,
			MaxHedges:        uint8(min(c.raceHedges(), race.MaxAttempts-1)),
			MostHedges:       uint8(c.settings.MaxHedges),
			HedgeFinal:       c.hedgeFinal(),
			FailureSendsNext: c.settings.policy != nil,
			LastFailureWins:  c.settings.policy != nil,
			Judged:           c.settings.Answer != nil,
			Detached:         c.detached,
		},
		Start: c.start,
		Due:   c.delay,
		Alarm: c.alarm(),
	}, true
}

// alarm is the one for calls that have about the same delay.
func (c *Call) alarm() *race.Alarm {
	if c.class != nil {
		return &c.class.alarm
	}
	return &c.method.alarm
}

// Learns reports whether the call's latency is of interest. It is not when the method is left out of hedging.
func (c *Call) Learns() bool { return c.method != nil && !c.unlearned }

// Age is how long ago the call began.
func (c *Call) Age() time.Duration { return time.Since(c.start) }

// NotReplayable says that no second attempt of the call can be made, so that Plan is false from now on.
func (c *Call) NotReplayable() {
	if c.armed {
		c.armed = false
		c.method.counters.notReplayable.Add(1)
		c.method.counters.follow()
		c.tellHeldBack(1, stats.NotReplayable)
		c.reportUnhedged()
	}
}

// Admit decides whether hedge n, which is due, is sent; n is 1 for the first. If so, it has been paid for and counted. It is
// the turn-th that is considered. Failures so far are booked before, because the throttle goes by them.
func (c *Call) Admit(n, turn int, so *race.Report) race.Event {
	c.bookFailures(so)
	c.refund(so)
	now := time.Now()
	slow := so.PoorAnswers() == 0 && !so.Repeated // the hedge is due because the call is slow, and for no other reason
	if slow {
		c.late(n, now)
	}
	switch {
	case !c.armed:
		return race.Event{Kind: race.Refused}
	case c.engine.pausedBy(c.method) != "":
		return c.refuse(n, stats.Paused)
	case wire.ForHedge(c.ctx):
		return c.refuseHedgeOfHedge(n)
	case !c.settings.throttle.passes():
		return c.refuse(n, stats.Throttled)
	case c.settings.policy == nil && c.deadlineNear(now):
		return c.refuse(n, stats.DeadlineNear)
	case slow && turn > c.maxHedges():
		return onlyForPoor()
	case slow && turn == 1 && c.early(now):
		return race.Event{Kind: race.HeldBack, Until: c.delay}
	case slow && turn == 1 && now.Sub(c.start) < c.patientDelay(now):
		return race.Event{Kind: race.HeldBack, Until: c.patientDelay(now)}
	case slow && !c.draw(turn, now):
		c.holdBack(n, stats.NotDrawn)
		return race.Event{Kind: race.Skipped}
	// The connection of a call that is repeated is gone, so the state of that connection does not hold the hedge back.
	case !so.Repeated && c.settings.policy == nil && c.conn != nil && c.conn.GetState() != connectivity.Ready:
		return c.postpone(n, now, stats.NotReady)
	case !so.Repeated && c.staysHere(n):
		return c.postpone(n, now, stats.NoOtherBackend)
	case !so.Repeated && !so.Detached && c.mustWaitForReset(now):
		return c.postpone(n, now, stats.ResetsSpent)
	case c.unbudgeted():
	default:
		urgent := n > 1 || so.Repeated || now.Sub(c.start) >= 2*c.delay
		if why := c.afford(now, n, urgent); why != stats.NoReason {
			return c.postpone(n, now, why)
		}
	}
	c.heldBack, c.why = stats.NoReason, stats.NoReason
	if c.settings.Guard {
		c.method.guard.Sent(now)
	}
	c.settings.groups.sent(c.group, now)
	c.method.counters.update(func(s *stats.Counts) {
		s.Hedges++
		if n == 1 {
			s.Hedged++
		}
	})
	return race.Event{Kind: race.Admitted}
}

// refund gives back what was paid for hedges that were dropped since the last look. As only one hedge is prepared at a time,
// that is at most the last one that was paid for.
func (c *Call) refund(so *race.Report) {
	for ; int(c.dropped) < so.Dropped; c.dropped++ {
		if !c.unbudgeted() {
			c.payment.refund()
		}
	}
}

// refuse counts why the call gets no more hedges.
func (c *Call) refuse(n int, why stats.Reason) race.Event {
	c.holdBack(n, why)
	return race.Event{Kind: race.Refused}
}

// refuseHedgeOfHedge takes back what the call has earned too, so that calls on behalf of hedges pay for no others.
func (c *Call) refuseHedgeOfHedge(n int) race.Event {
	if !c.unbudgeted() {
		c.payment.takeBack()
	}
	return c.refuse(n, stats.OfHedge)
}

// draw reports whether the hedge that is due is to be sent, which is the same each time that one is asked about.
func (c *Call) draw(turn int, now time.Time) bool {
	if turn == c.turn {
		return c.drawn
	}
	c.turn = turn
	e := c.estimate
	c.drawn = e == nil || e.Probability >= 1 || c.method.learner.Draw(e.Probability)
	if c.drawn && e != nil && e.Trickle != nil {
		c.drawn, _ = e.Trickle.Pay(now, true, 1)
	}
	return c.drawn
}

// early reports whether what was learned since the call began says that its first hedge is due later, and sets the delay by
// that. A burst of calls begins before what the one before it taught is concluded. What was learned under another
// configuration than the call's says nothing.
func (c *Call) early(now time.Time) bool {
	if c.estimate == nil {
		return false
	}
	l := &c.method.learner
	if c.class != nil {
		l = &c.class.learner
	}
	e := l.Estimate()
	if e == nil || e == c.estimate || e.Delay <= c.delay || !e.MadeUnder(c.settings.learning) {
		return false
	}
	c.delay = e.Delay
	return now.Sub(c.start) < c.delay
}

// deadlineNear reports whether an answer that takes the median would come after the deadline.
func (c *Call) deadlineNear(now time.Time) bool {
	deadline, ok := c.ctx.Deadline()
	return ok && deadline.Sub(now) <= c.median()
}

// median is what a call like this one usually takes; 0 while that is being learned.
func (c *Call) median() time.Duration {
	if c.class != nil {
		if median := c.class.learner.Median(); median > 0 {
			return median
		}
	}
	return c.method.learner.Median()
}

// postpone counts why the due hedge was held back and says when to consider it again.
//
// Up to twice the delay that is soon, an eighth of the call's age later: where slightly more hedges come due than the budget
// earns, calls that end meanwhile leave the tokens to those that do not, and a slow call loses a fraction of the delay. Then
// it is at three times the delay, and from there on at twice the call's age, so that in an outage a call that lasts long is
// looked at a handful of times.
func (c *Call) postpone(n int, now time.Time, why stats.Reason) race.Event {
	if c.heldBack != why {
		c.heldBack = why
		c.holdBack(n, why)
	}
	age := now.Sub(c.start)
	wait := age
	switch {
	case age < 2*c.delay:
		wait = min(age/8, 2*c.delay-age)
	case age < 3*c.delay:
		wait = 3*c.delay - age
	}
	return race.Event{Kind: race.HeldBack, Until: age + max(wait, retryFloor)}
}

// final returns the statuses by which a server says that it looked at the request and answered.
func (c *Call) final() codeset.Set {
	if c.settings.policy != nil {
		return c.settings.policy.Final
	}
	return c.settings.Final
}

// pretend counts the hedge that a call of that age would have had, at its end instead of when it was due. Whether there
// would have been a second one nobody knows: the first might have answered.
func (c *Call) pretend(age time.Duration) {
	due := c.start.Add(c.delay)
	c.dry = false
	c.method.counters.update(func(s *stats.Counts) {
		switch {
		case age <= c.delay:
		case !c.draw(1, due):
			s.NotDrawn++
		case !c.unbudgeted() && !c.payment.pay(due, true):
			s.BudgetExhausted++
		default:
			s.DryRun++
		}
	})
}
