package race

import (
	"context"
	"time"
)

// Loosen returns the context of an attempt of a detached race: one that may outlive the call. It has the values and the
// deadline of the caller's context, and is cancelled with it until it is let go. cancel ends it, and frees what it holds.
func Loosen(caller context.Context) (ctx context.Context, cancel context.CancelCauseFunc, letGo func()) {
	ctx = context.WithoutCancel(caller)
	free := func() {}
	if deadline, ok := caller.Deadline(); ok {
		ctx, free = context.WithDeadline(ctx, deadline)
	}
	ctx, end := context.WithCancelCause(ctx)
	if caller.Err() == context.Canceled { // now, not on another goroutine: the attempt must not be sent
		end(context.Cause(caller))
	}
	stop := context.AfterFunc(caller, func() {
		// The context's own deadline ends it with the right error, at the same time.
		if _, ok := caller.Deadline(); !ok || caller.Err() != context.DeadlineExceeded {
			end(context.Cause(caller))
			free()
		}
	})
	cancel = func(cause error) {
		stop()
		end(cause)
		free()
	}
	return ctx, cancel, func() { stop() }
}

// patience is how long a loser that was left may run on.
const patience = 30 * time.Second

// Drainer is an attempt, or the entrant for its primary, that has more to receive when it has lost and was left.
type Drainer interface {
	// Drain receives and drops all of it. It returns when the attempt has ended, or its context.
	Drain()
}

// runDetached runs the race with the primary on a goroutine of its own.
func (r *Race) runDetached() Outcome {
	r.mu.Lock()
	committed := r.committed
	r.mu.Unlock()
	x := r.ensureRunner()
	if committed {
		x.commit()
	}
	go x.primary()
	x.wait()
	return x.outcome()
}

// primary makes the primary attempt of a detached race.
func (x *runner) primary() {
	over := false
	defer func() {
		if !over {
			x.hedges[0].crash = newCrash(recover())
			x.handle(Event{Kind: Ended, End: Panicked}, nil)
			x.tellFollowed(ErrLost, false)
			x.free(0)
		}
	}()
	growStack(0)
	err := x.entrant.Primary()
	judged := x.plan.judge(x.entrant, err)
	if err != nil { // Failure says whether; this begins to watch the attempts that come
		x.policy.MayRepeat(err)
	}
	a := x.handle(ended(x.policy, 0, x.entrant, err, judged), err)
	x.mu.Lock()
	won := x.report.decided && x.report.Winner == 0
	x.mu.Unlock()
	x.tellFollowed(err, judged.poor)
	if !a.Kept && (!won || err != nil) {
		x.free(0)
	}
	over = true
}

// tellFollowed says how the primary ended, if it was followed.
func (x *runner) tellFollowed(err error, poor bool) {
	x.mu.Lock()
	followed := x.followed
	x.mu.Unlock()
	if followed {
		x.policy.Followed(err, poor)
	}
}

// lose asks the policy which of the losers are left to run to their end, and lets go of those. The others are to be
// cancelled. It runs before the outcome is delivered, because the caller may then cancel its context. The lock must be held.
func (x *runner) lose(a *Actions) {
	left := a.Leave & x.policy.Lost(a.Cancel|a.Leave, a.Leave)
	x.left = left
	if x.followed = a.Leave.Has(0) && a.Deliver != DeliverPanic && x.machine.inFlight.Has(0) && x.policy.Follow(x.report.Hedges); x.followed {
		left |= only(0)
	}
	a.Cancel |= a.Leave &^ left
	a.Leave = left
	for n := range x.hedges {
		if !left.Has(n) {
			continue
		}
		x.hedges[n].letGo()
		x.hedges[n].patience = time.AfterFunc(patience, func() { x.cancel(only(uint8(n))) })
		if !x.machine.inFlight.Has(n) { // it was kept, so its goroutine has ended
			go x.free(uint8(n))
		}
	}
}

// free frees what attempt n holds. The attempt has lost or failed, and has ended. If it was left, it is drained first; one
// that was followed alone is not. A second call does nothing.
func (x *runner) free(n uint8) {
	h := &x.hedges[n]
	x.mu.Lock()
	left, timer := x.left.Has(int(n)), h.patience
	x.left &^= only(n)
	x.mu.Unlock()
	defer func() {
		if timer != nil {
			timer.Stop()
		}
		if left {
			x.policy.LeftEnded()
		}
		x.cancel(only(n))
	}()
	attempt := any(h.attempt)
	if n == 0 {
		attempt = x.entrant
	}
	if d, ok := attempt.(Drainer); ok && left {
		d.Drain()
	}
}
