package race

import (
	"sync"
	"time"
)

// Alarm wakes races at the times when their first hedges are due. It has one timer for all of them, so that a call
// that ends before costs two short lock sections and no timer of the runtime's. A timer of its own for each call costs
// more than that: one that is due within a millisecond interrupts a thread that waits for the network.
//
// The timer is not stopped when a call ends. It fires once more, at most one delay later, and is armed again only if
// a call waits then. The zero Alarm is ready for use. All methods may be called concurrently.
type Alarm struct {
	mu          sync.Mutex
	timer       *time.Timer // nil until first needed
	armed       bool
	first, last *Waiter // in the order of their times
}

// Waiter is what an alarm wakes. The zero Waiter with a Wake is ready for Set.
type Waiter struct {
	// Wake runs on a goroutine of its own when the time has come.
	Wake func()

	at             time.Time
	waiting        bool
	earlier, later *Waiter
}

// mostSteps is how many waiters Set passes over to find a place. Calls of one method have nearly the same delay, so
// that a new one belongs at the end or close to it, unless the delay has just become much shorter.
const mostSteps = 8

// Set has w woken at the given time, which is delay from now. It is false, and w is not woken, if w belongs far before
// the last waiter: the search for its place would hold up every other call, and the caller must use a timer of its own.
// w must not be waiting already.
func (a *Alarm) Set(w *Waiter, at time.Time, delay time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.last
	for steps := 0; before != nil && before.at.After(at); steps++ {
		if steps == mostSteps {
			return false
		}
		before = before.earlier
	}
	w.at, w.waiting = at, true
	a.insert(w, before)
	if !a.armed || before == nil {
		a.arm(delay)
	}
	return true
}

// Cancel takes w out and reports whether it was waiting. If not, Wake runs, has run, or was never to run.
func (a *Alarm) Cancel(w *Waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.waiting {
		return false
	}
	a.remove(w)
	return true
}

// fire wakes every waiter whose time has come. It runs on the timer's goroutine, which wakes the last of them itself.
func (a *Alarm) fire() {
	a.mu.Lock()
	now := time.Now()
	var wake func()
	for w := a.first; w != nil && !w.at.After(now); w = a.first {
		a.remove(w)
		if wake != nil {
			go wake()
		}
		wake = w.Wake
	}
	if a.armed = a.first != nil; a.armed {
		a.arm(a.first.at.Sub(now))
	}
	a.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// arm has the timer fire in d, with the lock held.
func (a *Alarm) arm(d time.Duration) {
	a.armed = true
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.fire)
		return
	}
	a.timer.Reset(d)
}

// insert puts w behind before, first if that is nil, with the lock held.
func (a *Alarm) insert(w, before *Waiter) {
	w.earlier = before
	if before == nil {
		w.later, a.first = a.first, w
	} else {
		w.later, before.later = before.later, w
	}
	if w.later == nil {
		a.last = w
	} else {
		w.later.earlier = w
	}
}

// remove takes w out, with the lock held.
func (a *Alarm) remove(w *Waiter) {
	if w.earlier == nil {
		a.first = w.later
	} else {
		w.earlier.later = w.later
	}
	if w.later == nil {
		a.last = w.earlier
	} else {
		w.later.earlier = w.earlier
	}
	w.waiting, w.earlier, w.later = false, nil, nil
}
