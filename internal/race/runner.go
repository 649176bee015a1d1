package race

import (
	"context"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/rpc"
)

// runner passes events to the machine of one race and does the machine's actions. The race's mu
// guards machine and report. It is not held during calls of the policy or the entrant, nor while an
// attempt runs or is canceled, because these may take long.
type runner struct {
	*Race
	machine Machine
	report  Report        // final once the outcome is delivered
	done    chan struct{} // closed then
	stepped sync.Cond     // for Commit
	hedges  [MaxAttempts]hedge
}

// hedge is one hedge. Only the goroutine that prepares and runs it uses it, except that any
// goroutine may call cancel while the hedge is in flight, and the caller's goroutine reads a hedge
// that has won. hedges[0] is the primary, with only cancel set.
type hedge struct {
	attempt Attempt
	ctx     context.Context
	marks   *rpc.Hedge // the parent of ctx
	cancel  context.CancelCauseFunc
	crash   func() // repeats its panic or Goexit on the caller's goroutine; nil for none
}

// handle passes an event to the machine and returns the actions that are left to do. err is the
// error of an Ended event.
func (x *runner) handle(e Event, err error) Actions {
	x.mu.Lock()
	var cancel Attempts
	if e.Kind != Ended || err != nil { // a success counts, even if the caller's context has just ended
		cancel = x.checkCaller()
	}
	delivered := x.machine.delivered
	a := x.step(e, err)
	cancel |= a.Cancel
	var drop context.CancelCauseFunc
	if a.Drop > 0 { // under the lock: the next hedge of that number may be prepared at once
		drop, x.hedges[a.Drop] = x.hedges[a.Drop].cancel, hedge{}
	}
	x.mu.Unlock()
	x.cancel(cancel)
	if drop != nil {
		drop(rpc.ErrLost)
	}
	if delivered && e.Kind == Ended && e.End == Panicked {
		x.policy.LoserPanicked()
	}
	return a
}

// checkCaller passes the end of the caller's context to the machine, once, and returns the attempts
// to cancel for it. x.mu must be held.
func (x *runner) checkCaller() Attempts {
	err := x.ctx.Err()
	if err == nil || x.machine.decided || x.machine.gone {
		return 0
	}
	return x.step(Event{Kind: CallerGone}, err).Cancel
}

// step passes one event to the machine, records it, and does the actions that need the lock: it
// sets the timer and signals the delivery. x.mu must be held.
func (x *runner) step(e Event, err error) Actions {
	defer x.stepped.Broadcast()
	now, decided, final := time.Since(x.plan.Start), x.machine.decided, x.machine.delivered
	a := x.machine.Step(e, now)
	if !final {
		x.report.Note(decided, e, a, err, now)
	}
	switch {
	case a.Arm:
		x.disarm()
		x.timer = time.AfterFunc(a.At-now, x.waiter.Wake)
	case a.Disarm:
		x.disarm()
	}
	if a.Decided && a.Winner > 0 && x.hedges[a.Winner].marks != nil { // nil: it panicked before it was prepared
		x.hedges[a.Winner].marks.Won()
	}
	if a.Deliver {
		close(x.done)
	}
	return a
}

// cancel cancels losers. x.mu must not be held: cancel functions run other packages' code.
func (x *runner) cancel(losers Attempts) {
	for n := range x.hedges {
		if losers.Has(n) {
			x.hedges[n].cancel(rpc.ErrLost)
		}
	}
}

// due runs on a goroutine of its own when the timer fires. A hedge that is sent runs on it.
func (x *runner) due() {
	var a Actions
	protect(func() {
		a = x.handle(Event{Kind: Due}, nil)
		if a.Ask > 0 {
			a = x.handle(x.ask(a), nil)
		}
		if a.Prepare > 0 {
			a = x.handle(x.prepare(a.Prepare), nil)
		}
		if a.Start > 0 {
			x.run(a.Start)
		}
	}, func(crash func()) { x.hedgePanicked(a, crash) })
}

func (x *runner) ask(a Actions) Event {
	ok := x.entrant.Replayable()
	x.mu.Lock()
	soFar, decided := x.report, x.machine.decided
	soFar.Repeated, soFar.Failover, soFar.Due = a.Repeat, a.Failover, x.machine.due
	x.mu.Unlock()
	switch {
	case decided: // do not pay for a hedge that is not needed
		return Event{Kind: Refused}
	case !ok:
		return Event{Kind: NotReplayable}
	}
	return x.policy.Admit(int(a.Ask), int(a.Turn), &soFar)
}

func (x *runner) prepare(n uint8) Event {
	h := &x.hedges[n]
	x.mu.Lock()
	primaryInFlight := x.machine.inFlight.Has(0)
	x.mu.Unlock()
	h.marks = rpc.HedgeContext(x.ctx, int(n), primaryInFlight)
	h.ctx, h.cancel = context.WithCancelCause(h.marks)
	if h.attempt = x.entrant.Hedge(int(n), h.cancel); h.attempt == nil {
		return Event{Kind: NotReplayable}
	}
	return Event{Kind: Prepared}
}

func (x *runner) run(n uint8) {
	h := &x.hedges[n]
	x.policy.Sent(int(n))
	growStack(int(n))
	err := h.attempt.Run(h.ctx)
	if a := x.handle(ended(&x.plan, x.policy, n, h.attempt, err), err); !a.Kept && (!a.Decided || a.Winner != n) {
		h.cancel(rpc.ErrLost)
	}
}

// primaryEnded handles the primary's end, waits for the delivery, passes the report to the policy
// and returns the result. It runs on the caller's goroutine.
func (x *runner) primaryEnded(e Event, err error) Result {
	x.handle(e, err)
	x.wait()
	winner, booked := &x.hedges[x.report.Winner], false
	defer func() {
		if !booked { // a function of the user panicked: the caller gets no outcome
			winner.cancel(nil)
		}
	}()
	x.policy.Book(&x.report)
	booked = true
	if x.report.Panicked && winner.crash != nil { // a primary panics on this goroutine by itself
		winner.crash()
	}
	return Result{Winner: winner.attempt, Err: x.report.Err} // the primary's attempt is nil
}

// wait waits until the outcome can be delivered, and for the end of the caller's context.
func (x *runner) wait() {
	select {
	case <-x.done:
		return
	case <-x.ctx.Done():
	}
	x.mu.Lock()
	cancel := x.checkCaller()
	x.mu.Unlock()
	x.cancel(cancel)
	<-x.done
}

// growStack grows the stack of a new goroutine to the size that a call of gRPC needs, in one step.
// Otherwise the stack grows several times, copying all frames each time, which takes a tenth of the
// time of a short call.
//
//go:noinline
func growStack(n int) byte {
	var room [6 << 10]byte
	return room[n]
}

// ended returns the event for the end of attempt n with err. With Rules.Judged it asks the attempt
// whether an end that could end the race is accepted.
func ended(plan *Plan, p Policy, n uint8, attempt Ending, err error) Event {
	var e Event
	if err != nil {
		e = p.Failure(err, attempt.Trailer())
	}
	if n > 0 && e.End == Final && plan.HedgeFinal && !attempt.(Attempt).Served() {
		e.End = NonFatal
	}
	if plan.Judged && (e.End == OK || e.End == Final && (n == 0 || plan.HedgeFinal)) {
		switch accepted, open := attempt.Accepts(err); {
		case accepted:
		case err == nil:
			e.End, e.Open = RejectedReply, open
		default:
			e.End = RejectedStatus
		}
	}
	e.Kind, e.Attempt = Ended, n
	return e
}
