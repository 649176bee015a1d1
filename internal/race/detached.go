package race

import "time"

// Patience is how long a loser that was left may run on.
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
	if !a.Kept && (!won || err != nil) {
		x.free(0)
	}
}

func (x *runner) primaryCrashed(again func()) {
	x.hedges[0].crash = again
	x.handle(Event{Kind: Ended, End: Panicked}, nil)
	x.free(0)
}

// lose asks the policy which of the losers are left to run to their end, and lets go of those. The others are to be
// cancelled. It runs before the outcome is delivered, because the caller may then cancel its context. The lock must be held.
func (x *runner) lose(a *Actions) {
	left := a.Leave & x.policy.Lost(a.Cancel|a.Leave, a.Leave)
	x.left = left
	a.Cancel |= a.Leave &^ left
	a.Leave = left
	for n := range x.hedges {
		if !left.Has(n) {
			continue
		}
		x.hedges[n].letGo()
		x.hedges[n].patience = time.AfterFunc(Patience, func() { x.cancel(only(uint8(n))) })
		if !x.machine.inFlight.Has(n) { // it was kept, so its goroutine has ended
			go protect(func() { x.free(uint8(n)) }, func(func()) { x.policy.LoserPanicked() })
		}
	}
}

// free frees what attempt n holds. The attempt has lost or failed, and has ended. If it was left, it is drained first. A
// second call does nothing.
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
