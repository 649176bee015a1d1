package hedge

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/place"
)

// Call is one RPC in the scheduler's books, from Begin to its end: what says when a hedge is due and whether
// it may be sent, and what takes note of how the attempts ended. The zero Call is never hedged.
//
// A binding asks Delay; without one it makes the call as it would without hedging and tells Ended. With one it
// races attempts, asks Admit when a hedge is due, and tells Ended or CutShort, and Won. If it Heeds, Failed is told of
// failures first. Calls of Admit, Next, Final and Failed must not overlap; every other method is for the caller's
// goroutine.
type Call struct {
	scheduler *Scheduler
	method    *method
	ctx       context.Context
	conn      Conn
	start     time.Time

	armed     bool
	dry       bool // it would be armed but for WithDryRun
	unlearned bool // nothing is learned from this call
	delay     time.Duration
	estimate  *learn.Estimate // what the delay was taken from; nil if it was not learned

	turn     int           // which hedge is due or was last, those counted that are not sent by chance
	drawn    bool          // it is to be sent
	hedgedAt time.Duration // the call's age when its first hedge was sent
	heldBack reason        // why it was held back last, so that a reason counts once for a hedge

	policy    *policy       // the service config's for the method; nil: none
	notBefore time.Duration // the age before which a server wants no further attempt
	stopped   bool          // no more hedges
	credited  bool          // a success has been counted for the throttle
	heeds     bool          // there is a policy or a throttle

	class  *class        // of its request; nil: none
	group  membership    // for comparison
	record *place.Record // where its attempts have been; nil where no policy asks
}

// reason is why a due hedge was not sent.
type reason uint8

const (
	noReason reason = iota
	budgetExhausted
	notReady
	noOtherBackend
)

// retryFloor is the least time after which a hedge that was held back is considered again: timers are not much
// more precise.
const retryFloor = 250 * time.Microsecond

// arm makes the call one that may be hedged, and has it pay its share into the budget.
func (c *Call) arm(delay time.Duration) {
	if !c.unbudgeted() { // what costs nothing must not pay for others
		c.method.target.budget.Earn(c.start)
	}
	if c.maxHedges() > 0 && (c.scheduler.config.budgetPercent > 0 || c.unbudgeted()) {
		c.dry = c.scheduler.config.dryRun
		c.armed, c.delay = !c.dry, delay
		if c.armed {
			c.group = c.method.groups.draw()
			c.armed = c.group != unhedgedGroup
		}
	}
}

// maxHedges is the most hedges that the call can have.
func (c *Call) maxHedges() int {
	switch {
	case c.policy != nil:
		return c.policy.hedges
	case c.estimate != nil:
		return c.estimate.Hedges
	}
	return c.scheduler.config.maxHedges
}

// unbudgeted reports whether the call's hedges cost nothing.
func (c *Call) unbudgeted() bool { return c.policy != nil && c.scheduler.config.unbudgeted }

// Delay is the age at which the call's first hedge is due; false if it gets none.
func (c *Call) Delay() (time.Duration, bool) { return c.delay, c.armed }

// Learns reports whether the call's latency is of interest. It is not when the method is left out of hedging.
func (c *Call) Learns() bool { return c.method != nil && !c.unlearned }

// Age is how long ago the call began.
func (c *Call) Age() time.Duration { return time.Since(c.start) }

// NotReplayable says that no second attempt of the call can be made, so that Delay is false from now on.
func (c *Call) NotReplayable() {
	if c.armed {
		c.armed = false
		c.method.counters.notReplayable.Add(1)
	}
}

// Admit decides whether hedge n, which is due, is sent; n is 1 for the first. If so, it has been paid for and
// counted. Otherwise it may be asked again after the given time, or never when that is 0.
func (c *Call) Admit(n int) (send bool, again time.Duration) {
	if !c.armed || c.stopped || !c.drawn && c.turn >= c.maxHedges() {
		return false, 0
	}
	now := time.Now()
	switch {
	case now.Sub(c.start) < c.notBefore:
		return false, c.notBefore - now.Sub(c.start)
	case c.scheduler.paused.Load():
		c.stopped = true
		c.method.counters.update(func(s *Stats) { s.Paused++ })
		return false, 0
	case !c.method.target.throttle.passes():
		c.stopped = true
		c.method.counters.update(func(s *Stats) { s.Throttled++ })
		return false, 0
	case c.policy == nil && c.deadlineNear(now):
		c.method.counters.update(func(s *Stats) { s.DeadlineNear++ })
		return false, 0
	case !c.draw(now):
		c.method.counters.update(func(s *Stats) { s.NotDrawn++ })
		if next, more := c.Next(); more {
			return false, max(next, retryFloor)
		}
		return false, 0
	case c.policy == nil && c.conn != nil && c.conn.GetState() != connectivity.Ready:
		return false, c.postpone(now, notReady)
	case c.staysHere(n):
		return false, c.postpone(now, noOtherBackend)
	case c.unbudgeted():
	case !c.pay(now, n):
		return false, c.postpone(now, budgetExhausted)
	}
	c.heldBack, c.drawn = noReason, false
	if n == 1 {
		c.hedgedAt = now.Sub(c.start)
	}
	c.method.groups.sent(c.group, now)
	c.method.counters.update(func(s *Stats) {
		s.Hedges++
		if n == 1 {
			s.Hedged++
		}
	})
	return true, 0
}

// veryLate is how many times its delay a call has lasted that all of the savings may pay for.
const veryLate = 3

// pay takes a token for hedge n, from the savings if need be.
func (c *Call) pay(now time.Time, n int) bool {
	b, age := c.method.target.budget, now.Sub(c.start)
	return b.Spend(now, n > 1 || age >= 2*c.delay) || b.SpendSaved(now, age >= veryLate*c.delay)
}

// draw reports whether the hedge that is due is to be sent, which is the same each time that one is asked about.
func (c *Call) draw(now time.Time) bool {
	if c.drawn {
		return true
	}
	c.turn++
	e := c.estimate
	c.drawn = e == nil ||
		(e.Probability >= 1 || c.method.learner.Draw(e.Probability)) && (e.Trickle == nil || e.Trickle.Spend(now, true))
	return c.drawn
}

// deadlineNear reports whether an answer that takes the method's median would come after the deadline.
func (c *Call) deadlineNear(now time.Time) bool {
	deadline, ok := c.ctx.Deadline()
	return ok && deadline.Sub(now) <= c.median()
}

// median is what a call like this one usually takes, 0 while that is being learned.
func (c *Call) median() time.Duration {
	if c.class != nil {
		if median := c.class.learner.Median(); median > 0 {
			return median
		}
	}
	return c.method.learner.Median()
}

// postpone counts why the due hedge was held back and returns when to consider it again.
//
// Up to twice the delay that is soon, an eighth of the call's age later: where slightly more hedges come due than
// the budget earns, calls that end meanwhile leave the tokens to those that do not, and a slow call loses a
// fraction of the delay. Then it is when savings may pay, and from there on at twice the call's age, so that in an outage a
// call that lasts long is looked at a handful of times.
func (c *Call) postpone(now time.Time, why reason) time.Duration {
	if c.heldBack != why {
		c.heldBack = why
		c.method.counters.update(func(s *Stats) {
			switch why {
			case budgetExhausted:
				s.BudgetExhausted++
			case notReady:
				s.NotReady++
			case noOtherBackend:
				s.NoOtherBackend++
			}
		})
	}
	age := now.Sub(c.start)
	switch {
	case age < 2*c.delay:
		return max(min(age/8, 2*c.delay-age), retryFloor)
	case age < veryLate*c.delay:
		return max(veryLate*c.delay-age, retryFloor)
	}
	return max(age, retryFloor)
}

// Next is how long after a hedge the one after it is due; false says that there is none.
func (c *Call) Next() (time.Duration, bool) {
	return c.delay, c.drawn || c.turn < c.maxHedges()
}

// Final reports whether an attempt that ended with err ends the race: a nil error does, and an error whose
// status is not one of the non-fatal ones.
func (c *Call) Final(err error) bool {
	final := c.scheduler.config.final
	if c.policy != nil {
		final = c.policy.final
	}
	return err == nil || final.has(err)
}

// Ended says that the primary has just ended with err. An answer teaches its latency, a call that its caller
// gave up or whose deadline passed teaches that it would have taken longer, and any other failure nothing.
func (c *Call) Ended(err error) {
	if c.dry {
		c.pretend(c.Age())
	}
	if err == nil {
		c.Succeeded()
	}
	switch {
	case !c.Learns():
	case err == nil:
		c.observe()
	case c.ctx.Err() != nil:
		now := time.Now()
		c.method.groups.ended(c.group, now, now.Sub(c.start), false)
		c.CutShort(now)
	case answers.has(err):
		c.observe()
	}
}

// pretend counts the hedge that a call of that age would have had, at its end instead of when it was due. Whether there
// would have been a second one nobody knows: the first might have answered.
func (c *Call) pretend(age time.Duration) {
	due := c.start.Add(c.delay)
	c.dry = false
	c.method.counters.update(func(s *Stats) {
		switch {
		case age <= c.delay:
		case !c.draw(due):
			s.NotDrawn++
		case !c.unbudgeted() && !c.method.target.budget.Spend(due, true):
			s.BudgetExhausted++
		default:
			s.DryRun++
		}
	})
}

func (c *Call) observe() {
	took := time.Since(c.start)
	c.method.groups.ended(c.group, c.start.Add(took), took, true)
	c.learners(func(l *learn.Learner) { l.Observe(c.start.Add(took), took) })
}

// CutShort says that the primary had not answered at the given time, when a hedge won.
func (c *Call) CutShort(at time.Time) {
	if c.Learns() {
		c.learners(func(l *learn.Learner) { l.ObserveLonger(at, at.Sub(c.start)) })
	}
}

// Won says that the call, which was hedged, ended with the outcome err of hedge n, or of the primary when n is
// 0. Only an answer counts as a win.
func (c *Call) Won(n int, err error) {
	if c.method == nil {
		return
	}
	answered := answers.has(err)
	// A caller that gave up proves nothing about hedges, where a deadline that no attempt met does.
	proves := answered || !errors.Is(c.ctx.Err(), context.Canceled)
	if proves {
		c.method.target.budget.Hedged(n > 0 && answered)
	}
	if proves && c.estimate != nil && c.Learns() {
		c.learners(func(l *learn.Learner) {
			l.Hedged(n > 0 && answered, c.hedgedAt, c.Age()-c.hedgedAt, c.maxHedges())
		})
	}
	if !answered {
		return
	}
	if err == nil {
		c.Succeeded()
	}
	if n > 0 && c.Learns() {
		c.method.groups.ended(c.group, time.Now(), c.Age(), true)
	}
	c.method.counters.update(func(s *Stats) {
		if n == 0 {
			s.PrimaryWins++
		} else {
			s.HedgeWins++
		}
	})
}

// Hedged says how long after it was sent a hedge decided the call with err, or was cancelled because something else did.
// A hedge that failed before is not told, and one that won with a failure teaches nothing.
func (c *Call) Hedged(after time.Duration, won bool, err error) {
	switch {
	case !c.Learns() || c.scheduler.config.trigger.kind != autoTrigger:
	case !won:
		c.learners(func(l *learn.Learner) { l.HedgeCancelled(time.Now(), after) })
	case answers.has(err):
		c.learners(func(l *learn.Learner) { l.HedgeAnswered(time.Now(), after) })
	}
}

// LoserPanicked says that an attempt panicked after the call was decided. It may be called at any time, from
// any goroutine.
func (c *Call) LoserPanicked() {
	if c.method != nil {
		c.method.counters.update(func(s *Stats) { s.LoserPanics++ })
	}
}
