package call

import (
	"cmp"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// due is a hedge that is due.
type due struct {
	*Call
	*holding               // of hedge n
	n, turn  int           // see Call.Admit
	now      time.Time     // at which it is considered
	age      time.Duration // of the call
	race     *race.State   // at now
	cause    race.Cause    // of the hedge
	busy     bool          // this process is short of processor time, so the answer may lie unread
}

// holdings is the state of a call's hedges and attempts.
type holdings struct {
	heldBack stats.Reason  // why the last hedge was held back, so that each reason counts once per hedge
	hasDraw  bool          // draw has decided whether the call was drawn
	drawAt   time.Duration // the age at which draw decided
	undrawn  time.Duration // the age at which a call that was not drawn is hedged; 0 if it was drawn

	of [race.MaxAttempts]holding // by number
}

// holding is the state of one attempt. The primary uses only to and counted.
type holding struct {
	to      *Leg // where the attempt goes: the call's own leg, unless chooseLeg gave a hedge another one
	claim   claim
	ticket  guard.Ticket
	counted bool // its failure was counted: see countFailures
}

// ensureHeld returns c.held, and makes it if it is nil. It is called before the race, by Admit and at
// the end of the race, which do not overlap.
func ensureHeld(c *Call) *holdings {
	if c.held == nil {
		c.held = new(holdings)
		for n := range c.held.of {
			c.held.of[n].to = &c.Leg
		}
	}
	return c.held
}

// Admit decides whether hedge n, which is due, is sent; n is 1 for the first. turn is the number of
// hedges that count against the maximum, including hedge n. A hedge that is admitted is paid for;
// Sent counts it.
func (c *Call) Admit(n, turn int, soFar *race.State) race.Event {
	countFailures(c, soFar)
	now := time.Now()
	if c.elsewhere != nil {
		chooseLeg(c, n, now)
	}
	d := due{
		Call: c, holding: &ensureHeld(c).of[n], n: n, turn: turn,
		now: now, age: now.Sub(c.Start), race: soFar, cause: soFar.Cause,
	}
	if n == 1 && c.Conn != nil && c.Conn.GetState() != connectivity.Ready { // the question takes a lock of gRPC's
		d.untaught = true
	}
	d.busy = d.cause == race.Slow && runqueue.Busy(d.age-soFar.Due, d.age/busyShare)
	if d.busy {
		d.untaught = true
	} else if d.cause == race.Slow && d.estimate != nil && !soFar.Attempts[n-1].TurnedAway() { // the last attempt is late
		d.noteLate()
	}
	e, why := d.consider()
	if e.Kind != race.Admitted {
		d.notSent(e, why)
		return e
	}
	c.held.heldBack, c.why = stats.NoReason, stats.NoReason
	return e
}

// busyShare is the divisor of a call's age: the process is busy if goroutines wait for a processor
// for longer than the quotient. A call needs a processor about four times, so these waits make up a
// quarter of its age.
const busyShare = 16

// noteLate records that the attempt before the hedge is late. At another destination, the attempt
// is late by the delay of that destination's primaries, if that is longer.
func (d *due) noteLate() {
	last := d.LegOf(d.n - 1)
	if e := last.method.Learner.Estimate(); e != nil && last != &d.Leg &&
		d.age-d.race.Attempts[d.n-1].SentAt < e.Delay {
		return
	}
	if silent := last.Record.NoteLate(d.n, d.now, d.Delay); silent != "" {
		settings.Emit(d.settings.Traces, settings.SilenceNotice{Target: last.method.Target.Name, Address: silent})
	}
}

// consider returns [race.Admitted], or why hedge d is not sent: the first reason that holds, in the
// order below. A hedge that was held back is retried, so a reason may be checked more than once. To
// add a reason, see CONTRIBUTING.md.
func (d *due) consider() (race.Event, stats.Reason) {
	for _, reasons := range [...]func(*due) (race.Event, stats.Reason){forbidden, early, unreachable} {
		if e, why := reasons(d); e.Kind != race.Admitted {
			return e, why
		}
	}
	return d.take()
}

// forbidden has the reasons for which the call gets no more hedges.
func forbidden(d *due) (race.Event, stats.Reason) {
	// Hedging is paused, for calls in flight too.
	if d.method.Paused() {
		return refuse(stats.Paused)
	}
	// The call is made on behalf of a hedge. The budget takes back the call's share, which must not
	// pay for other hedges.
	if race.MadeForHedge(d.Context) {
		d.settings.Budgets.Forfeit()
		return refuse(stats.OfHedge)
	}
	// Many attempts of the destination fail.
	if e, why := (throttle{d.to.settings.Throttle}).take(d); e.Kind != race.Admitted {
		return e, why
	}
	// An answer after the median latency would miss the deadline.
	if deadlineNear(d.Call, d.to, d.now) {
		return refuse(stats.DeadlineNear)
	}
	return admitted, stats.NoReason
}

// early has the reasons for which the call is to wait longer for the attempts that it has.
func early(d *due) (race.Event, stats.Reason) {
	// The trigger wants no more hedges of a slow call. The hedge is held back forever, or as long as
	// hedge.NoLaterThan lets it: a refusal would also prevent hedges after rejected answers.
	if until := d.latest(); d.cause == race.Slow && d.turn > int(d.maxHedges) && d.age < until {
		return holdUntil(until)
	}
	// The newest estimate has a longer delay: latencies have risen since the call began. From here on
	// the call has that delay.
	if until := d.newestDelay(); until > d.Delay {
		if d.Delay = until; d.age < until {
			return holdUntil(until)
		}
	}
	// The backend is silent: the primary gets more time, to show whether it answers.
	if until := d.patientDelay(); d.age < until {
		return holdUntil(until)
	}
	// The answer may lie unread in this process, and reading it comes first.
	if d.busy {
		return d.holdBack(stats.ClientBusy)
	}
	// The call was not drawn. Its latency shows the gain of hedges.
	until := time.Duration(d.turn) * min(draw(d.Call, d.age), d.settings.Latest)
	if d.cause == race.Slow && d.age < until {
		return race.Event{Kind: race.HeldBack, Until: until}, stats.NotDrawn
	}
	return admitted, stats.NoReason
}

// unreachable has the reasons for which the destination cannot have the hedge now.
func unreachable(d *due) (race.Event, stats.Reason) {
	away, asGRPC := d.to != &d.Leg, d.settings.AsGRPC
	// The destination has pushed back. In gRPC, that delays the hedge for which a failed call waits.
	pushedBack, turnedAway := d.pushbacks()
	if d.age < pushedBack {
		waits := asGRPC && d.cause >= race.Failed && pushedBack < race.Longest
		return race.Event{Kind: race.HeldBack, Until: pushedBack, Waits: waits}, stats.NoReason
	}
	// The connection is not ready.
	if conn := d.to.Conn; conn != nil && !usable(conn.GetState(), d.cause >= race.Failed || away) {
		return d.holdBack(stats.NotReady)
	}
	// A server turned a hedge away, and there may be no other backend. gRPC asks again at once.
	if !asGRPC && d.age < turnedAway && (away || d.Record != nil && !d.Record.Spare()) {
		return holdUntil(turnedAway)
	}
	return admitted, stats.NoReason
}

// pushbacks returns the ages until which the destination of the hedge wants no attempt of the call:
// by its pushbacks, and because it turned a hedge away, which holds for one delay.
func (d *due) pushbacks() (pushedBack, turnedAway time.Duration) {
	for k, a := range d.race.Attempts[:d.n] {
		if a.Pushback == race.NoPushback || d.LegOf(k).Target != d.to.Target {
			continue
		}
		if pushedBack = max(pushedBack, a.NotBefore()); a.TurnedAway() {
			turnedAway = max(turnedAway, a.EndedAt+d.Delay)
		}
	}
	return pushedBack, turnedAway
}

var admitted = race.Event{Kind: race.Admitted}

// refuse gives the call no more hedges.
func refuse(why stats.Reason) (race.Event, stats.Reason) {
	return race.Event{Kind: race.Refused}, why
}

// holdUntil holds a hedge back until the call has the given age, which counts as no reason.
func holdUntil(age time.Duration) (race.Event, stats.Reason) {
	return race.Event{Kind: race.HeldBack, Until: age}, stats.NoReason
}

// holdBack holds a hedge back for a while.
func (d *due) holdBack(why stats.Reason) (race.Event, stats.Reason) {
	until := retryAt(d.age, d.Delay)
	if latest := d.latest(); d.age < latest {
		until = min(until, latest)
	}
	return race.Event{Kind: race.HeldBack, Until: until}, why
}

// latest returns the age from which the plan does not hold the hedge back: see hedge.NoLaterThan.
func (d *due) latest() time.Duration { return time.Duration(d.turn) * d.settings.Latest }

// usable reports whether a hedge can be sent on a connection in a state. A hedge that replaces a
// failed attempt, or has a connection of its own, may wait for the connection.
func usable(s connectivity.State, waits bool) bool {
	return s == connectivity.Ready || waits && (s == connectivity.Idle || s == connectivity.Connecting)
}

const retryFloor = 250 * time.Microsecond // timers are hardly more precise

// retryAt returns the age at which a hedge that is held back is retried:
//
//	age < 2 delay    an eighth of the age later
//	age < 3 delay    at 3 delay
//	else             at twice the age
//
// If slightly more hedges are due than the budget pays for, early retries give slower calls the
// tokens. Later retries are rare, so that a long call in an outage costs little.
func retryAt(age, delay time.Duration) time.Duration {
	wait := age
	switch {
	case age < 2*delay:
		wait = min(age/8, 2*delay-age)
	case age < 3*delay:
		wait = 3*delay - age
	}
	return age + max(wait, retryFloor)
}

// deadlineNear reports whether a hedge on a leg, sent at now, that takes the median latency would
// miss the deadline.
func deadlineNear(c *Call, leg *Leg, now time.Time) bool {
	deadline, ok := c.Context.Deadline()
	return ok && deadline.Sub(now) <= median(c, leg, now)
}

// median returns the median latency to expect of a hedge on a leg at now, by the class or the
// method; 0 while it is unknown.
func median(c *Call, leg *Leg, now time.Time) time.Duration {
	own := cmp.Or(c.Learner().Median(), c.method.Learner.Median())
	if leg.method != c.method {
		return leg.method.Learner.MedianHere(now, own)
	}
	return own
}

// newestDelay returns the delay of a slow call's first hedge by the newest estimate, or 0 if that
// does not apply. Without it, hedges to servers that finish canceled work fill queues faster than
// the delays of calls in flight grow, and the queues never recover.
func (d *due) newestDelay() time.Duration {
	if !d.settings.Auto || d.cause != race.Slow || d.turn != 1 || d.estimate == nil || d.held.hasDraw {
		return 0
	}
	l := d.Learner()
	newest := l.Estimate()
	if newest == nil || *l.Config() != d.settings.Config.Config { // a call in flight keeps its settings
		return 0
	}
	return min(newest.Delay, d.settings.Latest, race.Longest)
}

// patientDelay returns the age until which the first hedge of a slow call is held back: longer than
// the delay at a silent backend, but at most a quarter of the time between start and deadline.
func (d *due) patientDelay() time.Duration {
	if d.cause != race.Slow || d.turn != 1 || d.estimate == nil {
		return 0
	}
	limit := d.settings.Latest
	if deadline, ok := d.Context.Deadline(); ok {
		limit = min(limit, deadline.Sub(d.Start)/4)
	}
	return d.Record.PatientDelay(d.Delay, limit)
}

// draw returns 0 if a call that is slow at the given age was drawn to be hedged, and otherwise the
// age of its first hedge. A call keeps its draw.
func draw(c *Call, age time.Duration) time.Duration {
	a := ensureHeld(c)
	if e := c.estimate; !a.hasDraw {
		if a.hasDraw = true; e != nil {
			a.drawAt, a.undrawn = age, c.Learner().Draw(e, age)
		}
	}
	return a.undrawn
}

// notSent counts and reports why hedge d is not sent; a reason to hold it back, once in a row.
func (d *due) notSent(e race.Event, why stats.Reason) {
	held := e.Kind == race.HeldBack
	if why == stats.NoReason || held && d.held.heldBack == why {
		return
	}
	d.method.Counters.HeldBack(why)
	reportHeldBack(d.Call, d.n, why)
	if registry.PreventsHedges(why) {
		d.method.ReportUnhedgeable()
	}
	if held {
		d.held.heldBack = why
	}
}

func traced(c *Call) stats.Call {
	m := c.method
	return stats.Call{Context: c.Context, Target: m.Target.Name, Method: m.Name, Names: m.Names()}
}

// Sent implements [race.Policy]. It counts the hedge, at its destination too.
func (c *Call) Sent(n int, why race.Cause) {
	now, leg := time.Now(), c.LegOf(n)
	if c.settings.Guard {
		leg.method.Guard.Sent(now)
	}
	if leg.method != c.method {
		leg.method.Counters.Received.Add(1)
		leg.method.Counters.Flush()
		c.method.SentTo(leg.method.Target.Name)
	}
	if c.group == control.Hedgeable {
		c.settings.Groups.HedgeSent(now)
	}
	c.method.Counters.Update(func(s *stats.Counts) {
		s.Hedges++
		if why >= race.Failed {
			s.Failovers++
		}
		if n == 1 {
			s.Hedged++
		}
	})
	if traces := c.settings.Traces; len(traces) > 0 {
		settings.Emit(traces, stats.HedgeSent{Call: traced(c), Hedge: n, Age: c.Age(), Destination: leg.method.Target.Name})
	}
}

// reportHeldBack reports why hedge n, which was due, was not sent: to traces, and to hedge.Report
// at the end of the call.
func reportHeldBack(c *Call, n int, why stats.Reason) {
	c.why = why
	settings.Emit(c.settings.Traces, stats.HedgeHeldBack{Call: traced(c), Hedge: n, Age: c.Age(), Reason: why})
}

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
	for _, b := range c.settings.Budgets {
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
	for _, l := range limitsOf(d.Call, d.to)[1:] {
		if e, why := l.take(d); e.Kind != race.Admitted {
			d.claim.settle(false)
			return e, why
		}
	}
	return admitted, stats.NoReason
}

// share is a hedge's share of one limit.
type share struct {
	of    limit
	saved bool // a budget paid from its savings
}

// claim has the shares of one hedge. A claim ends once: it is spent if the hedge is sent and not turned
// away, and settled otherwise.
type claim []share

// settle gives the claim back.
func (k *claim) settle(turnedAway bool) {
	for _, s := range *k {
		s.of.giveBack(s, turnedAway)
	}
	*k = (*k)[:0]
}

// attemptEnd is the end of attempt n of a call, for the limits. They get each failure twice: with over
// unset before the next hedge is considered or, without one, when the race ends; and with over set once
// the race is over. They get the winner once, with over set, and no loser that was in flight.
type attemptEnd struct {
	race.Event
	call *Call
	leg  *Leg // of the attempt
	n    int
	race *race.State // nil if the attempt is the only one
	over bool        // the race is over
	won  bool        // over: hedge n has answered the call, and no hedge was due because of a failure
}

// noteEnd passes the end of an attempt to its limits.
func noteEnd(e attemptEnd) {
	for _, l := range limitsOf(e.call, e.leg) {
		l.ended(e)
	}
}

// countFailures counts the attempts that have failed since its last call, and refunds hedges that
// were turned away, or admitted and not sent.
func countFailures(c *Call, r *race.State) {
	for n := range r.Hedges + 1 {
		a := &r.Attempts[n]
		if a.Err == nil || a.CutShort || ensureHeld(c).of[n].counted || goneBefore(c, r, n) {
			continue
		}
		c.held.of[n].counted = true
		countFailure(c, c.LegOf(n), n, a.Event)
		switch {
		case a.TurnedAway(): // the next hedge is due at once
			c.method.Counters.Update(func(s *stats.Counts) { s.TurnedAway++ })
			if c.group == control.Hedgeable {
				c.settings.Groups.TurnedAway(time.Now())
			}
			c.held.of[n].claim.settle(true) // the attempt has ended, and is not reset
		case a.Pushback != race.NoPushback:
			reportHeldBack(c, r.Hedges+1, stats.PushedBack)
		}
	}
	if c.held != nil {
		for n := r.Hedges + 1; n < race.MaxAttempts; n++ {
			c.held.of[n].claim.settle(false)
		}
	}
}

// countFailure counts a failed attempt on a leg.
func countFailure(c *Call, leg *Leg, n int, e race.Event) {
	noteEnd(attemptEnd{Event: e, call: c, leg: leg, n: n})
	if e.Pushback != race.NoPushback {
		c.method.Counters.Update(func(s *stats.Counts) { s.PushedBack++ })
	}
}

// noteEnds passes each failure and the winner of a race that is over to the limits. won reports
// whether a hedge has won.
func noteEnds(c *Call, r *race.State, won bool) {
	countFailures(c, r)
	won = won && r.Failovers == 0 // a failover that wins shows nothing about the hedges of slow calls
	for n := range r.Hedges + 1 {
		if a := &r.Attempts[n]; n == r.Winner || a.Err != nil && !a.CutShort {
			noteEnd(attemptEnd{Event: a.Event, call: c, leg: c.LegOf(n), n: n, race: r, over: true, won: won && n == r.Winner})
		}
	}
}

// throttle is the throttle of a leg's target: no hedges while many attempts fail.
type throttle struct{ *guard.Throttle }

func (t throttle) take(d *due) (race.Event, stats.Reason) {
	if t.Throttle != nil && t.Throttles(d.now, d.to != &d.Leg) {
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
	if d.settings.Guard && g.Guard.Watches() && !d.settings.Budgets.Free() && !d.race.AllFailed() &&
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
type resets struct{ *guard.Resets }

func (r resets) take(d *due) (race.Event, stats.Reason) {
	switch {
	case d.cause == race.Cut: // all attempts have failed, so the hedge causes no reset of a loser
		return admitted, stats.NoReason
	case !r.Admit(d.now):
		return d.holdBack(stats.ResetsSpent)
	}
	d.claim = append(d.claim, share{of: r})
	return admitted, stats.NoReason
}

func (r resets) giveBack(share, bool) { r.Refund() }

// ended does nothing: Call.failure has recorded the cut, because the verdict depends on it.
func (resets) ended(attemptEnd) {}

// bucket is a budget that pays for hedges.
type bucket struct{ *budget.Bucket }

// take takes a token. To rescue a call, the budget may borrow it.
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

// giveBack gives the token back; of a hedge that its server turned away, all but a tenth.
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
		until = min(until, deadline.Sub(d.Start)-median(d.Call, d.to, d.now)-d.Delay/8)
	}
	if d.age >= until {
		return 0, until
	}
	return min(float64(until-d.age)/float64(until-d.Delay), 1), until
}
