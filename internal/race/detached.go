package race

import "time"

// Patience is how long a loser that was left, or is followed, may run on.
const Patience = 30 * time.Second

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
	go protect(x.primary, x.primaryCrashed)
	x.wait()
	return x.outcome()
}

// primary makes the primary attempt of a detached race.
func (x *runner) primary() {
	growStack(0)
	err := x.entrant.Primary()
	poor, open := x.plan.judge(x.entrant, err)
	if err != nil { // whether the call is repeated is said by Failure
		x.policy.SuspectCut(err)
	}
	a := x.handle(ended(x.policy, 0, x.entrant, err, poor, open), err)
	x.mu.Lock()
	won := x.report.decided && x.report.Winner == 0
	x.mu.Unlock()
	x.tellFollowed(err, poor)
	if !a.Kept && (!won || err != nil) {
		x.free(0)
	}
}

func (x *runner) primaryCrashed(again func()) {
	x.hedges[0].crash = again
	x.handle(Event{Kind: Ended, End: Panicked}, nil)
	x.tellFollowed(ErrLost, false)
	x.free(0)
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
	longest := time.Duration(0) // that the primary is followed
	if a.Leave.Has(0) && !a.Panic && x.machine.inFlight.Has(0) {
		longest = x.policy.Follow(x.report.Hedges)
	}
	if x.followed = longest > 0; x.followed {
		left |= only(0)
	}
	a.Cancel |= a.Leave &^ left
	a.Leave = left
	for n := range x.hedges {
		if !left.Has(n) {
			continue
		}
		x.hedges[n].letGo()
		wait := Patience
		if n == 0 && !x.left.Has(0) {
			wait = longest
		}
		x.hedges[n].patience = time.AfterFunc(wait, func() { x.cancel(only(uint8(n))) })
		if !x.machine.inFlight.Has(n) { // it was kept, so its goroutine has ended
			go protect(func() { x.free(uint8(n)) }, func(func()) { x.policy.LoserPanicked() })
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
