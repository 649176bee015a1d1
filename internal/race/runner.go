package race

import (
	"context"
	"time"

	"github.com/grpchedge/hedge/internal/wire"
)

// runner does what the machine of one race wants. The machine is told of events, and its report is kept, under the lock of
// the race. Everything that may take longer than an instant is done without: asking the policy, preparing and running
// hedges, and cancelling.
type runner struct {
	*Race
	machine   Machine
	report    Report
	delivered bool          // the report is final
	settled   chan struct{} // closed when it is; made only for a caller that waits for that
	hedges    [MaxAttempts]hedge
}

// hedge is one hedge, in the place of its number. It belongs to the goroutine that prepares and runs it. Others may use
// cancel as long as it is in flight, and all of it once the race is settled on it.
type hedge struct {
	attempt Attempt
	ctx     context.Context
	cancel  context.CancelCauseFunc
	crash   *crash
}

// newRunner is called with the race's lock held. The machine finds the timer as begin has set it.
func newRunner(r *Race) *runner {
	x := &runner{Race: r}
	x.machine, _ = NewMachine(r.plan.Rules, r.plan.Due)
	x.report.Attempts[0].SentAt = r.plan.From
	return x
}

// happened tells the machine of an event and returns what it wants done next. Whatever ended with err is e's attempt.
func (x *runner) happened(e Event, err error) Actions {
	x.mu.Lock()
	var cancel Attempts
	if e.Kind != Ended || err != nil { // an answer counts, even if the caller has just left
		cancel = x.noteCaller()
	}
	late := x.delivered
	a := x.take(e, err)
	cancel |= a.Cancel
	x.mu.Unlock()
	x.cancel(cancel)
	if a.Drop > 0 {
		x.drop(a.Drop)
	}
	if late && e.Kind == Ended && e.End == Panicked {
		x.policy.LoserPanicked()
	}
	return a
}

// noteCaller tells the machine that the caller's context has ended, if it has and that is news, and returns the attempts
// that are to be cancelled for it. The lock is held.
func (x *runner) noteCaller() Attempts {
	err := x.ctx.Err()
	if err == nil || x.delivered || x.report.decided || x.report.CallerGone != CallerStayed {
		return 0
	}
	e := Event{Kind: Cancelled}
	if err == context.DeadlineExceeded {
		e.Kind = DeadlinePassed
	}
	return x.take(e, nil).Cancel
}

// take tells the machine of one event, and does what it wants done at once, with the lock held.
func (x *runner) take(e Event, err error) Actions {
	now := time.Since(x.plan.Start)
	a := x.machine.Step(e, now)
	if !x.delivered {
		x.report.Record(e, a, err, now)
	}
	switch a.Timer {
	case ArmTimer:
		x.arm(a.At - now)
	case StopTimer:
		x.disarm()
	}
	if a.Deliver != DeliverNothing {
		x.delivered = true
		if x.settled != nil {
			close(x.settled)
		}
	}
	return a
}

// cancel ends attempts that have lost. The lock is not held, because that runs other packages' code.
func (x *runner) cancel(losers Attempts) {
	if losers.Has(0) {
		x.cancelPrimary(ErrLost)
	}
	for n := 1; n < MaxAttempts; n++ {
		if losers.Has(n) {
			x.hedges[n].cancel(ErrLost)
		}
	}
}

// drop forgets a hedge that was admitted and is not sent. It runs on the goroutine that prepares hedges.
func (x *runner) drop(n uint8) {
	if h := &x.hedges[n]; h.cancel != nil {
		h.cancel(ErrLost)
		*h = hedge{}
	}
}

// due runs on a goroutine of its own when the timer fires. That becomes the goroutine of the hedge that is sent.
func (x *runner) due() {
	a := Actions{}
	returned := false
	defer func() {
		if !returned {
			x.crashed(a, newCrash(recover()))
		}
	}()
	a = x.happened(Event{Kind: Due}, nil)
	if a.Ask > 0 {
		a = x.happened(x.ask(a), nil)
	}
	if a.Prepare > 0 {
		a = x.happened(x.prepare(a.Prepare), nil)
	}
	if a.Start > 0 {
		x.run(a.Start)
	}
	returned = true
}

// ask asks whether the hedge that is due may be sent.
func (x *runner) ask(a Actions) Event {
	ok, shared := x.entrant.Replayable()
	x.mu.Lock()
	if shared {
		x.machine.share()
	}
	so := x.report
	x.mu.Unlock()
	switch {
	case so.decided: // there is nothing to pay for
		return Event{Kind: Refused}
	case !ok:
		return Event{Kind: NotReplayable}
	}
	return x.policy.Admit(int(a.Ask), int(a.Turn), &so)
}

// prepare makes hedge n ready to run.
func (x *runner) prepare(n uint8) Event {
	h := &x.hedges[n]
	h.ctx, h.cancel = context.WithCancelCause(wire.HedgeContext(x.ctx, int(n)))
	if h.attempt = x.entrant.Hedge(int(n), h.cancel); h.attempt == nil {
		return Event{Kind: NotReplayable}
	}
	return Event{Kind: Prepared}
}

// run makes hedge n.
func (x *runner) run(n uint8) {
	h := &x.hedges[n]
	err := h.attempt.Run(h.ctx)
	var e Event
	if err != nil {
		e = x.policy.Failure(int(n), err, h.attempt.Trailer())
	}
	e.Kind, e.Attempt = Ended, n
	if a := x.happened(e, err); !a.Decided || a.Winner != n {
		h.cancel(ErrLost)
	}
}

// primaryEnded takes the primary's end into account, waits until the race is settled, books it and returns its outcome. It
// runs on the caller's goroutine.
func (x *runner) primaryEnded(e Event, err error) Outcome {
	e.Kind = Ended
	x.happened(e, err)
	x.wait()
	x.policy.Book(&x.report)
	switch winner := &x.hedges[x.report.Winner]; {
	case x.report.Winner == 0:
		return Outcome{Err: x.report.Err}
	case x.report.Panicked:
		winner.crash.surface()
		return Outcome{} // not reached
	default:
		return Outcome{Winner: winner.attempt, Release: winner.cancel, Err: x.report.Err}
	}
}

// wait returns when the race is settled. As long as it is not decided it is bounded by the caller's context.
func (x *runner) wait() {
	x.mu.Lock()
	if x.delivered {
		x.mu.Unlock()
		return
	}
	x.settled = make(chan struct{})
	x.mu.Unlock()
	select {
	case <-x.settled:
		return
	case <-x.ctx.Done():
	}
	x.mu.Lock()
	cancel := x.noteCaller()
	x.mu.Unlock()
	x.cancel(cancel)
	<-x.settled
}

// commit settles the race on the primary if it still can be, and reports whether the primary decides it.
func (x *runner) commit() bool {
	x.mu.Lock()
	var cancel Attempts
	if !x.report.decided {
		cancel = x.take(Event{Kind: Committed}, nil).Cancel
	}
	primary := x.report.decided && x.report.Winner == 0
	x.mu.Unlock()
	x.cancel(cancel)
	return primary
}
