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

// runner passes events to the state of one race, and does the actions that Step returns. The race's mu
// guards state and guests. It is not held during calls of the policy, the entrant or a context, nor
// while an attempt runs or is canceled: these run other packages' code.
//
// Nothing of the caller's is used once the call may have returned, its context included: see [loan].
// The call does not return while a hedge is considered, nor while there are guests.
//
// After Policy.Ended, the runner drops its hedges and its state, because a stream that stays open keeps
// its race in memory.
type runner struct {
	*Race
	state   *State
	done    chan struct{} // closed when the outcome is delivered: the state is final then
	stepped sync.Cond     // for Commit and for guests
	guests  int           // goroutines that run the user's code, cancel attempts, or use the caller's context
	over    bool          // the call may return: no loser becomes a guest
	hedges  [MaxAttempts]*hedge
}

// finished is the state of every race after Policy.Ended. No event changes it.
var finished = State{decided: true, delivered: true}

// hedge is one hedge. Only the goroutine that prepares and runs it uses it, except that any
// goroutine may call cancel while the hedge is in flight, and the caller's goroutine reads a hedge
// that has won. hedges[0] is the primary, with only cancel set.
type hedge struct {
	attempt Attempt
	ctx     *Context
	cancel  context.CancelCauseFunc
	crash   func() // repeats its panic or Goexit on the caller's goroutine; nil for none
}

// handle passes an event to the state and returns the actions that are left to do.
func (x *runner) handle(e Event) Actions {
	x.mu.Lock()
	delivered := x.state.delivered
	a := x.step(e)
	var drop context.CancelCauseFunc
	if a.Drop > 0 { // under the lock: the next hedge of that number may be prepared at once
		drop = x.hedges[a.Drop].cancel
	}
	cancels := a.Cancel != 0 || drop != nil
	if cancels { // a cancellation uses the caller's context, the parent of the hedges'
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

// checkCaller passes the end of the caller's context to the state, once. The call must not return
// before checkCaller has.
func (x *runner) checkCaller() {
	err := x.ctx.Err()
	if err == nil {
		return
	}
	x.mu.Lock()
	var cancel Attempts
	if !x.state.decided && !x.state.CallerGone {
		cancel = x.step(Event{Kind: CallerGone, Err: err}).Cancel
	}
	if cancel != 0 { // Commit may run on another goroutine, and the call must wait for the cancellations
		x.guests++
		defer x.leave()
	}
	x.mu.Unlock()
	x.cancel(cancel)
}

// step passes one event to the state, and does the actions that need the lock: it sets the timer, makes
// each started hedge a guest, and signals the delivery. x.mu must be held.
func (x *runner) step(e Event) Actions {
	defer x.stepped.Broadcast()
	now := time.Since(x.plan.Start)
	a := x.state.Step(e, now)
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
	a := x.handle(Event{Kind: Due})
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
		if a = x.handle(e); a.Start > 0 {
			x.run(h, n, a.Cause)
		}
	}, func(crash func()) { x.hedgePanicked(h, n, paid, crash) })
}

// ask returns the answer to a.Ask: the entrant's, or else the policy's.
func (x *runner) ask(a Actions) Event {
	ok := x.entrant.Replayable()
	x.mu.Lock()
	soFar := *x.state
	x.mu.Unlock()
	switch {
	case soFar.decided || soFar.CallerGone: // do not pay for a hedge that is not needed
		return Event{Kind: Refused}
	case !ok:
		return Event{Kind: NotReplayable}
	}
	return x.policy.Admit(int(a.Ask), int(a.Turn), &soFar)
}

// prepare makes the context and the attempt of hedge n. It returns false if the entrant cannot make it.
func (x *runner) prepare(h *hedge, n uint8) (ok bool) {
	x.mu.Lock()
	primaryInFlight := x.state.Attempts[0].Kind != Ended
	x.mu.Unlock()
	h.ctx = x.hedgeContext(n, primaryInFlight)
	h.cancel = h.ctx.Cancel
	h.attempt = x.entrant.Hedge(int(n), h.ctx)
	return h.attempt != nil
}

// run makes hedge n, which the state has started, and handles its end.
func (x *runner) run(h *hedge, n uint8, why Cause) {
	x.announce(n, why)
	growStack(int(n))
	end := h.attempt.Run(h.ctx)
	open := x.enter()
	if open { // otherwise h.ctx is canceled already
		defer x.leave()
	}
	e := x.policy.Judge(int(n), end, open)
	if e.Err = end.Err; open && e.Err != nil {
		x.checkCaller()
	}
	if a := x.handle(e); !a.Kept && (!a.Decided || a.Winner != n) {
		h.cancel(rpc.ErrLost)
	}
}

// announce passes the start of hedge n, which is a guest until then, to the policy.
func (x *runner) announce(n uint8, why Cause) {
	defer x.leave()
	x.policy.Sent(int(n), why)
}

// primaryEnded handles the primary's end, waits for the delivery, passes the state to the policy
// and returns the result. It runs on the caller's goroutine.
func (x *runner) primaryEnded(e Event) Result {
	if e.Err != nil { // a success counts, even if the caller's context has just ended
		x.checkCaller()
	}
	x.handle(e)
	x.wait()
	s := x.state
	winner, ended := x.hedges[s.Winner], false
	defer func() {
		if !ended && winner.cancel != nil { // a function of the user panicked: the caller gets no outcome
			winner.cancel(nil)
		}
	}()
	x.policy.Ended(s)
	ended = true
	x.mu.Lock()
	x.hedges, x.state = [MaxAttempts]*hedge{}, &finished
	x.mu.Unlock()
	if s.Panicked && winner.crash != nil { // a primary panics on this goroutine by itself
		winner.crash()
	}
	return Result{Winner: winner.attempt, Err: s.Err} // the primary's attempt is nil
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
	x.handle(Event{Kind: Ended, Attempt: n, End: Panicked, Paid: paid})
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
