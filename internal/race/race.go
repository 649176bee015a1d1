// Package race runs the attempts of one call against each other: a primary on the caller's
// goroutine and, if the primary is slow, hedges on goroutines of their own. Exactly one attempt
// decides the call. The others are canceled at that moment, and none of their results reaches the
// caller.
//
// A [State] is a race as a value, and its record. [State.Step] decides the race, without a timer,
// goroutine or context. A [Race] has these, and does the [Actions] that Step returns. Most calls
// need no hedge, and run without a state. An [Entrant] makes the attempts, each under a [Context].
// A [Policy] admits hedges, and takes the final state.
package race

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Longest is the longest delay, 73 years; a longer one means the same. The sum of three delays and
// an age does not overflow.
const Longest = time.Duration(math.MaxInt64 / 4)

// Rules define how a race ends and when it sends hedges. They do not change during a race.
type Rules struct {
	// Delay is the time from the start of the call to the first hedge, and from each hedge to the
	// next. A delay above Longest means Longest.
	Delay time.Duration
	// MaxHedges is the maximum number of hedges of the call, 0 to the constant MaxHedges. Hedges that
	// were turned away or cut do not count, unless CountsAll is set.
	MaxHedges uint8
	CountsAll bool
	// HedgeFinal lets a hedge's Final status end the race, as the primary's does. Otherwise a hedge
	// ends the race only with OK: the "not found" of a second deletion must not replace the OK of
	// the first.
	HedgeFinal bool
	// Judged allows rejected answers. A rejected answer makes the next hedge due at once, and the
	// race waits for it unless it is held back. Without an OK the outcome is, in this order: the first
	// rejected reply, an accepted status, the first rejected status.
	Judged bool
}

// Plan is the plan of one race: its rules, and when its first hedge is due.
type Plan struct {
	Rules
	// Start is the time at which the call began. All ages count from it.
	Start time.Time
	// Due is the age at which the first hedge is due.
	Due time.Duration
	// From is the age at which the race begins, at most Due. It is above 0 only for a stream on
	// which the caller starts to wait some time after the call began.
	From time.Duration
	// Before, if not nil, is called when a hedge is due, before it is considered. It may block.
	Before func()
	// Alarm is the shared timer for the first hedge. If it is nil, the race uses a timer of its
	// own.
	Alarm *Alarm
}

// StartAt returns the plan for a race that begins at the given age. A first hedge that was due
// before is due after the grace period, or after the delay if that is shorter: the primary may have
// its answer already.
func (p Plan) StartAt(age, grace time.Duration) Plan {
	p.From = age
	if p.Due <= age {
		p.Due = age + min(grace, p.Delay)
	}
	return p
}

// Result is the end of a race, for the caller of Decide.
type Result struct {
	Winner Attempt // the hedge that decided the call; nil means the primary
	Err    error   // the deciding attempt's
	// Untouched means that the primary ended before a hedge was due, and its end made none due. There
	// is no final state. The Race may begin again.
	Untouched bool
}

// Race is one race, from Begin to the end of Decide. The zero value is ready. A race that has ended
// Untouched may begin again.
type Race struct {
	ctx           context.Context
	cancelPrimary context.CancelCauseFunc
	plan          Plan
	policy        Policy
	entrant       Entrant

	waiter Waiter // in plan.Alarm, unless timer is set

	mu        sync.Mutex
	timer     *time.Timer // the race's own; nil while it uses the alarm
	runner    *runner     // nil until the race needs a state
	committed bool        // Commit was called before Begin
	restarted bool        // Restart has set plan.Start
	untouched bool        // the race is over, with Result.Untouched

	returned bool // the primary has returned without a panic; only its goroutine uses the field
}

// Begin prepares the race, and arms the timer of the first hedge. ctx is the caller's context and
// the parent of each hedge's. cancel ends the primary attempt, which must then return promptly.
// Commit may run at the same time: the fields that it reads change in one lock section.
//
// Begin and Decide are separate so that the plan is not on the stack while the primary waits.
func (r *Race) Begin(ctx context.Context, cancel context.CancelCauseFunc, plan Plan, p Policy, e Entrant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restarted {
		plan.Start = r.plan.Start
	}
	r.waiter.Waker = r
	r.ctx, r.cancelPrimary, r.plan, r.policy, r.entrant, r.untouched, r.returned = ctx, cancel, plan, p, e, false, false
	r.arm()
}

// arm sets the alarm or a timer for the first hedge. r.mu must be held.
func (r *Race) arm() {
	if r.restarted {
		r.plan.From, r.plan.Due, r.plan.Alarm = 0, r.plan.Delay, nil
	}
	if r.sendsNone() {
		return
	}
	wait := r.plan.Due - r.plan.From
	if r.plan.Alarm == nil || !r.plan.Alarm.Set(&r.waiter, r.plan.Start.Add(r.plan.Due), wait) {
		r.timer = after(wait, r.Wake)
	}
}

// after is time.AfterFunc, but starts f at once, and returns nil, if d is 0 or less. The race detector
// may crash if such a timer is set in a bubble of package synctest: see golang/go#78156.
func after(d time.Duration, f func()) *time.Timer {
	if d <= 0 {
		go f()
		return nil
	}
	return time.AfterFunc(d, f)
}

// sendsNone reports whether the race has no timer, as it sends no hedge. r.mu must be held.
func (r *Race) sendsNone() bool { return r.committed || r.plan.MaxHedges == 0 }

// stopTimer stops the timer, if there is one, or returns false if it is too late: Wake runs, or will
// run. r.mu must be held.
func (r *Race) stopTimer() bool { return r.sendsNone() || r.disarm() }

// disarm stops the timer or the alarm, and reports whether it was set. r.mu must be held.
func (r *Race) disarm() bool {
	if r.timer != nil {
		return r.timer.Stop()
	}
	return r.plan.Alarm != nil && r.plan.Alarm.Cancel(&r.waiter)
}

// Restart makes the call begin at now: all ages count from then, and the first hedge is due one
// delay later. It may be called once, on any goroutine, before or after Begin. It does nothing and
// returns false if a hedge was due, even if Wake has yet to run, or Commit was called.
func (r *Race) Restart(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.entrant != nil
	if r.runner != nil || begun && !r.stopTimer() {
		return false
	}
	if r.restarted, r.plan.Start = true, now; begun {
		r.arm()
	}
	return true
}

// Decide makes the primary attempt, and sends hedges by the plan and the policy. It returns when
// the call is decided and the primary has returned. Begin must have been called. If the primary
// panics after a hedge has won, the panic is dropped and counted as a loser's.
func (r *Race) Decide() (out Result) {
	defer func() {
		if r.returned {
			return
		}
		if out = r.primaryPanicked(); out.Winner != nil {
			recover() // the panic is a loser's
		}
	}()
	end := r.entrant.Primary()
	return r.primaryReturned(&end)
}

// primaryPanicked handles the primary's panic, which goes on unless a hedge has won. In both cases
// the hedges must end. Like primaryReturned, it is apart from Decide to keep the stack of a waiting
// caller small: the garbage collector scans the stack of every call in flight.
//
//go:noinline
func (r *Race) primaryPanicked() Result {
	return r.ensureRunner().primaryEnded(Event{Kind: Ended, End: Panicked})
}

// primaryReturned handles the primary's end.
func (r *Race) primaryReturned(end *End) Result {
	e := Event{Kind: Ended, Answers: true} // most calls need no judgment
	if end.Err != nil || r.plan.Judged {
		r.mu.Lock()
		decided := r.runner != nil && r.runner.state.decided
		lost, open := decided && r.runner.state.Winner > 0, !decided && !r.committed
		r.mu.Unlock()
		e = r.judge(0, end, open, lost)
	}
	e.Err, r.returned = end.Err, true
	if p := r.policy; r.endUntouched(r.plan.Judged && e.End.IsRejected() || e.Failover) {
		p.EndedUntouched(*end)
		return Result{Err: end.Err, Untouched: true}
	}
	return r.ensureRunner().primaryEnded(e)
}

// judge returns the meaning of the end of attempt n. The failure of a loser has none, unless its
// connection was cut, which is UNAVAILABLE.
func (r *Race) judge(n uint8, end *End, open, lost bool) Event {
	if lost && end.Err != nil && status.Code(end.Err) != codes.Unavailable {
		return Event{Kind: Ended, Attempt: n, End: NonFatal}
	}
	return r.policy.Judge(int(n), *end, open)
}

// endUntouched ends the race and returns true if the primary's end is its only event, as in most
// races. It does nothing and returns false if there is a runner, if the timer has fired and Wake is
// about to make one, or if the primary's end calls for a hedge (forHedge). After Commit no hedge is
// due.
func (r *Race) endUntouched(forHedge bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runner != nil || forHedge && !r.committed || !r.stopTimer() {
		return false
	}
	r.ctx, r.cancelPrimary, r.policy, r.entrant, r.plan, r.timer = nil, nil, nil, nil, Plan{}, nil
	r.untouched, r.committed = true, false
	return true
}

// Wake is called when the next hedge is due.
func (r *Race) Wake() {
	r.mu.Lock()
	r.plan.Alarm = nil // it has fired
	x := r.ensureRunnerLocked()
	r.mu.Unlock()
	x.due()
}

// ensureRunner returns the race's runner, and makes it if there is none.
func (r *Race) ensureRunner() *runner {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ensureRunnerLocked()
}

// ensureRunnerLocked is ensureRunner. r.mu must be held.
func (r *Race) ensureRunnerLocked() *runner {
	if r.runner == nil {
		x := &runner{Race: r, done: make(chan struct{}), stepped: sync.Cond{L: &r.mu}}
		x.contenders[0] = &contender{cancel: r.cancelPrimary}
		s, _ := NewState(r.plan) // Begin has armed the timer
		x.state = &s
		r.runner = x
	}
	return r.runner
}

// Commit makes the primary win, unless the race is decided or the primary has failed: no further
// hedge is sent, and hedges in flight are canceled. Commit reports whether the primary decides the
// call. It returns false once the outcome is delivered, because the policy may be booking that
// outcome. If it returns true and a hedge was ever due, it first calls decided with the state,
// under the race's lock. Commit may be called on any goroutine, before Begin, during Decide and
// after it. It waits for a hedge that is being prepared.
func (r *Race) Commit(decided func(*State)) bool {
	r.mu.Lock()
	beforeBegin := r.runner == nil && r.entrant == nil && !r.untouched
	r.committed = r.committed || beforeBegin
	if beforeBegin || r.untouched {
		r.mu.Unlock()
		return true
	}
	x := r.ensureRunnerLocked() // in this critical section: the primary's end may make the race untouched
	r.mu.Unlock()
	x.checkCaller()
	x.handle(Event{Kind: Committed})
	r.mu.Lock()
	defer r.mu.Unlock()
	for x.state.asked {
		x.stepped.Wait()
	}
	if s := x.state; s.delivered || !s.decided || s.Winner != 0 {
		return false
	}
	decided(x.state)
	return true
}

// Expire ends a race in which the primary has ended, as if the caller's deadline had passed: hedges
// in flight are canceled. Once the race is decided, Expire is a no-op. Expire may be called on any
// goroutine, but not before a hedge is prepared.
func (r *Race) Expire() {
	r.ensureRunner().handle(Event{Kind: CallerGone, Err: context.DeadlineExceeded})
}

// runner passes events to the state of one race, and does the actions that Step returns. The race's
// mu guards state and guests. It is not held during calls of the policy, the entrant or a context,
// nor while an attempt runs or is canceled: these run other packages' code.
//
// Nothing of the caller's is used once the call may have returned, its context included: see
// [loan]. The call does not return while a hedge is considered, nor while there are guests.
//
// After Policy.Ended, the runner drops its hedges and its state, because a stream that stays open
// keeps its race in memory.
type runner struct {
	*Race
	state      *State
	done       chan struct{} // closed when the outcome is delivered: the state is final then
	stepped    sync.Cond     // for Commit and for guests
	guests     int           // goroutines that run the user's code, cancel attempts, or use the caller's context
	over       bool          // the call may return: no loser becomes a guest
	contenders [MaxAttempts]*contender
}

// finished is the state of every race after Policy.Ended. No event changes it.
var finished = State{decided: true, delivered: true}

// contender is one hedge, or the primary. Only the goroutine that prepares and runs it uses it,
// except that any goroutine may call cancel while the hedge is in flight, and the caller's
// goroutine reads a hedge that has won. The primary has number 0, and only cancel set.
type contender struct {
	attempt Attempt
	ctx     *Context
	cancel  context.CancelCauseFunc
	crash   func() // repeats its panic or Goexit on the caller's goroutine; nil for none
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
	n, paid, h := a.Ask, false, new(contender)
	x.contenders[n] = h
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

// prepare makes the context and the attempt of hedge n. It returns false if the entrant cannot make
// it.
func (x *runner) prepare(h *contender, n uint8) (ok bool) {
	x.mu.Lock()
	primaryInFlight := x.state.Attempts[0].Kind != Ended
	x.mu.Unlock()
	h.ctx = x.hedgeContext(rpc.Marks(x.ctx, int(n), primaryInFlight))
	h.cancel = h.ctx.Cancel
	h.attempt = x.entrant.Hedge(int(n), h.ctx)
	return h.attempt != nil
}

// run makes hedge n, which the state has started, and handles its end.
func (x *runner) run(h *contender, n uint8, why Cause) {
	x.announce(n, why)
	growStack(int(n))
	end := h.attempt.Run(h.ctx)
	open := x.enter()
	if open { // otherwise h.ctx is canceled already
		defer x.leave()
	}
	e := x.judge(n, &end, open, !open)
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

// growStack grows the stack of a new goroutine to the size that a call of gRPC needs, in one step.
// Otherwise the stack grows several times, copying all frames each time, which takes a tenth of the
// time of a short call.
//
//go:noinline
func growStack(n int) byte {
	var room [6 << 10]byte
	return room[n]
}

// enter makes a hedge a guest and returns true, unless the race is decided. A hedge that is no
// guest must not run the user's code.
func (x *runner) enter() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state.decided {
		return false
	}
	x.guests++
	return true
}

func (x *runner) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.guests--
	x.stepped.Broadcast()
}

// handle passes an event to the state and returns the actions that are left to do.
func (x *runner) handle(e Event) Actions {
	x.mu.Lock()
	delivered := x.state.delivered
	a := x.step(e)
	var drop context.CancelCauseFunc
	if a.Drop > 0 { // under the lock: the next hedge of that number may be prepared at once
		drop = x.contenders[a.Drop].cancel
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

// step passes one event to the state, and does the actions that need the lock: it sets the timer,
// makes each started hedge a guest, and signals the delivery. x.mu must be held.
func (x *runner) step(e Event) Actions {
	defer x.stepped.Broadcast()
	now := time.Since(x.plan.Start)
	a := x.state.Step(e, now)
	switch {
	case a.Arm:
		x.disarm()
		x.timer = after(a.At-now, x.Wake)
	case a.Disarm:
		x.disarm()
	}
	if a.Decided && a.Winner > 0 && x.contenders[a.Winner].ctx != nil { // nil: it panicked before it was prepared
		l := x.contenders[a.Winner].ctx.hedge
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
	for n := range x.contenders {
		if losers&(1<<n) != 0 {
			x.contenders[n].cancel(rpc.ErrLost)
		}
	}
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
func (x *runner) hedgePanicked(h *contender, n uint8, paid bool, crash func()) {
	if h.crash = crash; h.cancel != nil {
		h.cancel(rpc.ErrLost)
	}
	x.handle(Event{Kind: Ended, Attempt: n, End: Panicked, Paid: paid})
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
	winner, ended := x.contenders[s.Winner], false
	defer func() {
		if !ended && winner.cancel != nil { // a function of the user panicked: the caller gets no outcome
			winner.cancel(nil)
		}
	}()
	x.policy.Ended(s)
	ended = true
	x.mu.Lock()
	x.contenders, x.state = [MaxAttempts]*contender{}, &finished
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
