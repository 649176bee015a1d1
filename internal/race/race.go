// Package race runs the attempts of one call against each other: a primary on the caller's goroutine and,
// when it is slow, hedges on goroutines of their own. Exactly one attempt decides the call. The others are
// cancelled the moment it does, and nothing they produce is seen by the caller.
//
// What happens in a race is decided by a [Machine], which does nothing by itself. A [Race] does what the machine wants: it
// has the timer, the goroutines and the contexts. Most calls need no hedge, and those run without a machine.
//
// The package knows nothing about replies, streams or budgets. An [Entrant] makes the attempts. A [Policy] admits hedges
// and books the report of the race. Unary calls, streams and plain functions share all of this.
package race

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

// Plan is what a race follows.
type Plan struct {
	Rules
	// Start is when the call began. All ages count from it.
	Start time.Time
	// Due is the age at which the first hedge is due.
	Due time.Duration
	// From is the age at which the race begins, at most Due: 0, unless something else of the call comes before.
	From time.Duration
	// Alarm says when the first hedge is due. It is shared by calls. Nil gives the race a timer of its own.
	Alarm *Alarm
}

// StartAt is the plan of a race that begins at the given age. A first hedge that was due before is due a moment later, so that
// the primary can hand over what it may have by now; with a delay of 0, at once.
func (p Plan) StartAt(age, moment time.Duration) Plan {
	p.From = age
	if p.Due <= age {
		p.Due = age + min(moment, p.Delay)
	}
	return p
}

// Policy decides what the rules leave open, and books what happened. Its methods are called without a lock.
type Policy interface {
	// Admit is asked when hedge n is due, 1 being the first. It returns an event of the kind Admitted, Skipped, HeldBack or
	// Refused. Turn is [Actions.Turn], and so is what has happened so far; it is valid during the call. Calls of Admit never
	// overlap, and none is made after Book.
	Admit(n, turn int, so *Report) Event
	// Failure returns an event that says how attempt n, the primary being 0, ended with err, which is not nil: End is Final
	// or NonFatal, and Pushback is what the trailer says. Kind and Attempt are set by the race. It may be called
	// concurrently, also after Book.
	Failure(n int, err error, trailer metadata.MD) Event
	// Book takes the report of the race, on the caller's goroutine. It is called once, unless [Outcome.Untouched]. The
	// report is valid during the call.
	Book(r *Report)
	// LoserPanicked says that a loser panicked too late for the report, or a hedge before it was sent. It may be called at
	// any time, from any goroutine.
	LoserPanicked()
}

// Entrant makes the attempts of one call.
type Entrant interface {
	// Primary makes the primary attempt and waits for its outcome. It runs on the caller's goroutine.
	Primary() error
	// Replayable reports whether the request can be sent again, and whether hedges that do so read the caller's memory until
	// they end. It is asked whenever a hedge is due.
	Replayable() (ok, shared bool)
	// Hedge prepares hedge n; nil if that turns out to be impossible. An attempt that wins may go on after its Run, as a
	// stream does; cancel then frees its context.
	//
	// The caller is inside its call until Replayable and Hedge return, so they may read what the caller owns; what Hedge
	// returns must not, unless that is shared. A call that is decided meanwhile waits for them before it returns, so they
	// should be quick. Nothing else waits. They never overlap.
	Hedge(n int, cancel context.CancelCauseFunc) Attempt
	// Trailer is what the primary, which has failed, had in its trailer; nil if that is not known.
	Trailer() metadata.MD
}

// Attempt is one hedge, ready to run.
type Attempt interface {
	// Run makes the attempt under ctx and waits for its outcome.
	Run(ctx context.Context) error
	// Trailer is what the attempt, whose Run has failed, had in its trailer; nil if that is not known.
	Trailer() metadata.MD
}

// ErrLost is the cause, in the sense of [context.Cause], with which the context of a losing attempt ends.
var ErrLost = errors.New("hedge: another attempt of the call was faster")

// Outcome is how a race ended.
type Outcome struct {
	// Winner is the hedge that decided the call; nil is the primary.
	Winner Attempt
	// Release frees the winner's context; nil when the primary decided the call.
	Release context.CancelCauseFunc
	// Err is the deciding attempt's error.
	Err error
	// Untouched says that no hedge was ever due, and that nothing of the primary's end called for one. There is no report
	// then: the caller books the primary's end. Nothing refers to the Race any more, and it may run again.
	Untouched bool
}

// Race is one race. The zero value is ready for one Run, and for another when Run's outcome says so.
type Race struct {
	ctx           context.Context
	cancelPrimary context.CancelCauseFunc
	plan          Plan
	policy        Policy
	entrant       Entrant

	waiter Waiter // waits in plan.Alarm, unless timer is set

	mu        sync.Mutex
	timer     *time.Timer // the race's own; nil as long as it waits for the alarm
	runner    *runner     // nil as long as the machine is not needed
	committed bool        // before the race began
	untouched bool        // it is over, and was
}

// Run makes the primary attempt, and sends hedges as the plan and the policy say. ctx is the caller's context, the parent of
// every hedge's; cancel ends the primary attempt, which must then return promptly. Run returns when the call is decided and
// the primary has returned.
//
// If a hedge has won and the primary then panics, the panic is dropped and counted as a loser's.
func (r *Race) Run(ctx context.Context, cancel context.CancelCauseFunc, plan Plan, p Policy, e Entrant) (out Outcome) {
	r.begin(ctx, cancel, plan, p, e)
	returned := false
	defer func() {
		if returned {
			return
		}
		// The primary panicked. The caller unwinds, unless a hedge has won, and no hedge may outlive it.
		if out = r.running().primaryEnded(Event{End: Panicked}, nil); out.Winner != nil {
			recover() //nolint:errcheck // it is a loser's
		}
	}()
	err := e.Primary()
	returned = true
	if r.endUntouched(err != nil && plan.FailureSendsNext) {
		return Outcome{Err: err, Untouched: true}
	}
	var end Event
	if err != nil {
		end = p.Failure(0, err, e.Trailer())
	}
	return r.running().primaryEnded(end, err)
}

// begin has the race woken when the first hedge is due. All that a Commit looks at changes in one step, as it may come now.
func (r *Race) begin(ctx context.Context, cancel context.CancelCauseFunc, plan Plan, p Policy, e Entrant) {
	if r.waiter.Wake == nil {
		r.waiter.Wake = func() { r.running().due() } // once in the life of a Race that is used again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx, r.cancelPrimary, r.plan, r.policy, r.entrant, r.untouched = ctx, cancel, plan, p, e, false
	if r.committed || plan.MaxHedges == 0 {
		return
	}
	wait := plan.Due - plan.From
	if plan.Alarm == nil || !plan.Alarm.Set(&r.waiter, plan.Start.Add(plan.Due), wait) {
		r.timer = time.AfterFunc(wait, r.waiter.Wake)
	}
}

// endUntouched ends a race in which nothing has happened but the primary's end, as in most, and reports whether it is one.
// It is none if that end calls for a hedge.
func (r *Race) endUntouched(calls bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runner != nil || calls && !r.committed || !r.disarm() && !r.committed && r.plan.MaxHedges > 0 {
		return false
	}
	r.ctx, r.cancelPrimary, r.policy, r.entrant, r.plan, r.timer = nil, nil, nil, nil, Plan{}, nil
	r.untouched, r.committed = true, false
	return true
}

// arm has the race woken in d, and not before, with the lock held.
func (r *Race) arm(d time.Duration) {
	r.disarm()
	if r.timer == nil {
		r.timer = time.AfterFunc(d, r.waiter.Wake)
		return
	}
	r.timer.Reset(d)
}

// disarm has the race not woken, with the lock held, and reports whether it would have been.
func (r *Race) disarm() bool {
	if r.timer != nil {
		return r.timer.Stop()
	}
	return r.plan.Alarm != nil && r.plan.Alarm.Cancel(&r.waiter)
}

// running returns what runs the machine, made now if need be.
func (r *Race) running() *runner {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runner == nil {
		r.runner = newRunner(r)
	}
	return r.runner
}

// Commit settles the race on the primary, unless it is decided already or the primary has failed: no hedge is sent any
// more, and those in flight are cancelled. It reports whether the primary decides the call.
//
// It may be called from any goroutine, at any time from before Run to after it.
func (r *Race) Commit() bool {
	r.mu.Lock()
	switch {
	case r.untouched:
		r.mu.Unlock()
		return true
	case r.runner == nil && r.entrant == nil: // Run has still to come
		r.committed = true
		r.mu.Unlock()
		return true
	}
	r.mu.Unlock()
	return r.running().commit()
}
