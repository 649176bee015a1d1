package race

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/rpc"
)

// runner passes events to the machine of one race and does the machine's actions. The race's mu
// guards machine, report and guests. It is not held during calls of the policy, the entrant or a
// context, nor while an attempt runs or is canceled: these run other packages' code.
//
// Nothing of the caller's is used once the call may have returned, its context included: see [loan].
// The call does not return while a hedge is considered, nor while there are guests.
type runner struct {
	*Race
	machine Machine
	report  *Report       // final once the outcome is delivered; nil after Policy.Ended
	done    chan struct{} // closed then
	stepped sync.Cond     // for Commit and for guests
	guests  int           // goroutines that run the user's code, cancel attempts, or use the caller's context
	over    bool          // no loser becomes a guest
	hedges  [MaxAttempts]*hedge
}

// hedge is one hedge. Only the goroutine that prepares and runs it uses it, except that any
// goroutine may call cancel while the hedge is in flight, and the caller's goroutine reads a hedge
// that has won. hedges[0] is the primary, with only cancel set. Once the outcome is delivered, hedges
// is empty and the report is gone: a stream that stays open keeps its race.
type hedge struct {
	attempt Attempt
	ctx     *Context
	cancel  context.CancelCauseFunc
	crash   func() // repeats its panic or Goexit on the caller's goroutine; nil for none
}

// handle passes an event to the machine and returns the actions that are left to do. err is the
// error of an Ended event.
func (x *runner) handle(e Event, err error) Actions {
	x.mu.Lock()
	delivered := x.machine.delivered
	a := x.step(e, err)
	var drop context.CancelCauseFunc
	if a.Drop > 0 { // under the lock: the next hedge of that number may be prepared at once
		drop = x.hedges[a.Drop].cancel
	}
	cancels := a.Cancel != 0 || drop != nil
	if cancels { // which uses the caller's context, the parent
		x.guests++
	}
	x.mu.Unlock()
	if cancels {
		x.cancel(a.Cancel)
		if drop != nil {
			drop(rpc.ErrLost)
		}
		x.leave()
	}
	if delivered && e.Kind == Ended && e.End == Panicked {
		x.policy.LoserPanicked()
	}
	return a
}

// checkCaller passes the end of the caller's context to the machine, once. The call must not return
// before checkCaller has.
func (x *runner) checkCaller() {
	err := x.ctx.Err()
	if err == nil {
		return
	}
	x.mu.Lock()
	var cancel Attempts
	if !x.machine.decided && !x.machine.gone {
		cancel = x.step(Event{Kind: CallerGone}, err).Cancel
	}
	if cancel != 0 { // the call must not return before: Commit may run on another goroutine
		x.guests++
		defer x.leave()
	}
	x.mu.Unlock()
	x.cancel(cancel)
}

// step passes one event to the machine, records it, and does the actions that need the lock: it
// sets the timer, makes a hedge that starts a guest, and signals the delivery. x.mu must be held.
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
		x.timer = time.AfterFunc(a.At-now, x.Wake)
	case a.Disarm:
		x.disarm()
	}
	if a.Decided && a.Winner > 0 && x.hedges[a.Winner].ctx != nil { // nil: it panicked before it was prepared
		l := x.hedges[a.Winner].ctx.hedge
		l.won.Store(true)
		l.values = nil // the caller's context has them, for as long as the winner needs them
	}
	if a.Start > 0 {
		x.guests++
	}
	if a.Deliver {
		close(x.done)
	}
	return a
}

// Note adds an event and the actions that the machine returned for it, at the age now of the
// call. decided reports whether the race was decided before. err is the error of an Ended event or
// of the caller's context. Note must not be called after the step that delivered the outcome.
func (r *Report) Note(decided bool, e Event, a Actions, err error, now time.Duration) {
	switch e.Kind {
	case NotReplayable:
		r.NotReplayable = true
	case Committed:
		r.Committed = r.Committed || a.Decided
	case CallerGone:
		if !decided && !r.CallerGone {
			r.CallerGone, r.GaveUp, r.GoneAt = true, err != context.DeadlineExceeded, now
		}
	case Ended:
		r.noteEnd(decided, e, err, now)
	}
	if a.Start > 0 {
		r.Hedges++
		r.Attempts[a.Start].SentAt = now
		if a.Failover {
			r.Failovers++
		}
	}
	if a.Decided {
		r.DecidedAt, r.Winner = now, int(a.Winner)
		for n := range r.Hedges + 1 {
			r.Attempts[n].CutShort = n != r.Winner && r.Attempts[n].Kind != Ended
		}
	}
	if a.Deliver {
		r.DeliveredAt, r.Panicked = now, a.Panic
		r.Err = r.Attempts[r.Winner].Err
	}
}

// noteEnd is Note for an Ended event.
func (r *Report) noteEnd(decided bool, e Event, err error, now time.Duration) {
	if decided && e.End == Panicked && int(e.Attempt) != r.Winner {
		r.LoserPanics++
	}
	if int(e.Attempt) > r.Hedges { // it panicked unsent
		return
	}
	if decided {
		e.Pushback = NoPushback
	}
	if e.TurnedAway() {
		r.TurnedAway++
	}
	if e.End.IsRejected() {
		r.Rejected++
	}
	t := &r.Attempts[e.Attempt]
	t.EndedAt, t.Event, t.Err = now, e, err
}

// cancel cancels losers. x.mu must not be held.
func (x *runner) cancel(losers Attempts) {
	for n := range x.hedges {
		if losers.Has(n) {
			x.hedges[n].cancel(rpc.ErrLost)
		}
	}
}

// due runs on a goroutine of its own when the timer fires. A hedge that is sent runs on it.
func (x *runner) due() {
	if x.plan.Before != nil {
		x.plan.Before()
	}
	a := x.handle(Event{Kind: Due}, nil)
	if a.Ask == 0 {
		return
	}
	n, paid, h := a.Ask, false, new(hedge)
	x.hedges[n] = h
	protect(func() {
		x.checkCaller()
		e := x.ask(a)
		if paid = e.Kind == Admitted; paid {
			if e.Paid = true; !x.prepare(h, n) {
				e.Kind = NotReplayable
			}
			x.checkCaller()
		}
		if a = x.handle(e, nil); a.Start > 0 {
			x.run(h, n, a.Failover)
		}
	}, func(crash func()) { x.hedgePanicked(h, n, paid, crash) })
}

func (x *runner) ask(a Actions) Event {
	ok := x.entrant.Replayable()
	x.mu.Lock()
	soFar, over := *x.report, x.machine.decided || x.machine.gone
	soFar.Failover, soFar.Due = a.Failover, x.machine.due
	x.mu.Unlock()
	switch {
	case over: // do not pay for a hedge that is not needed
		return Event{Kind: Refused}
	case !ok:
		return Event{Kind: NotReplayable}
	}
	return x.policy.Admit(int(a.Ask), int(a.Turn), &soFar)
}

func (x *runner) prepare(h *hedge, n uint8) (ok bool) {
	x.mu.Lock()
	primaryInFlight := x.report.Attempts[0].Kind != Ended
	x.mu.Unlock()
	h.ctx = x.hedgeContext(n, primaryInFlight)
	h.cancel = h.ctx.Cancel
	h.attempt = x.entrant.Hedge(int(n), h.ctx)
	return h.attempt != nil
}

func (x *runner) run(h *hedge, n uint8, failover bool) {
	x.announce(n, failover)
	growStack(int(n))
	end := h.attempt.Run(h.ctx)
	open := x.enter()
	if open { // otherwise h.ctx is canceled already
		defer x.leave()
	}
	e := x.policy.Judge(int(n), end, open)
	if open && end.Err != nil {
		x.checkCaller()
	}
	if a := x.handle(e, end.Err); !a.Kept && (!a.Decided || a.Winner != n) {
		h.cancel(rpc.ErrLost)
	}
}

// announce tells the policy that hedge n, a guest, is sent.
func (x *runner) announce(n uint8, failover bool) {
	defer x.leave()
	x.policy.Sent(int(n), failover)
}

// primaryEnded handles the primary's end, waits for the delivery, passes the report to the policy
// and returns the result. It runs on the caller's goroutine.
func (x *runner) primaryEnded(e Event, err error) Result {
	if err != nil { // a success counts, even if the caller's context has just ended
		x.checkCaller()
	}
	x.handle(e, err)
	x.wait()
	winner, ended := x.hedges[x.report.Winner], false
	defer func() {
		if !ended && winner.cancel != nil { // a function of the user panicked: the caller gets no outcome
			winner.cancel(nil)
		}
	}()
	report := x.report
	x.policy.Ended(report)
	ended = true
	x.hedges, x.report = [MaxAttempts]*hedge{}, nil
	if report.Panicked && winner.crash != nil { // a primary panics on this goroutine by itself
		winner.crash()
	}
	return Result{Winner: winner.attempt, Err: report.Err} // the primary's attempt is nil
}

// wait waits until the outcome can be delivered and no guest is left, and for the end of the
// caller's context.
func (x *runner) wait() {
	select {
	case <-x.done:
	case <-x.ctx.Done():
		x.checkCaller()
		<-x.done
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.guests > 0 {
		x.stepped.Wait()
	}
	x.over = true
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

// protect runs f. If f panics or calls runtime.Goexit, protect runs crashed. crash repeats the
// panic or Goexit on the goroutine that calls it, and does not return.
func protect(f func(), crashed func(crash func())) {
	returned := false
	defer func() {
		if !returned {
			crashed(crashOf(recover()))
		}
	}()
	f()
	returned = true
}

// crashOf returns a function that panics with value or, if value is nil, calls Goexit. Only a
// deferred function may call crashOf, while the stack of the panic exists.
func crashOf(value any) func() {
	if value == nil {
		return runtime.Goexit
	}
	stack := debug.Stack()
	// The first line has the number of a goroutine that has ended.
	if _, frames, ok := bytes.Cut(stack, []byte("\n")); ok {
		stack = frames
	}
	return func() { panic(&Panic{Value: value, Stack: stack}) }
}

// hedgePanicked handles the panic of hedge n, sent or not. It decides the call unless the race is
// decided.
func (x *runner) hedgePanicked(h *hedge, n uint8, paid bool, crash func()) {
	if h.crash = crash; h.cancel != nil {
		h.cancel(rpc.ErrLost)
	}
	x.handle(Event{Kind: Ended, Attempt: n, End: Panicked, Paid: paid}, nil)
}

// Panic is the value of a call's panic if a hedge has panicked.
type Panic struct {
	// Value is the value of the hedge's panic.
	Value any
	// Stack is the stack of the hedge's goroutine at the panic, as [debug.Stack] formats it.
	Stack []byte
}

// Error returns the value and the stack: the Go runtime prints both if the panic is not recovered.
func (p *Panic) Error() string {
	return fmt.Sprintf("hedge: panic in an attempt: %v\n\n%s", p.Value, p.Stack)
}

func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
