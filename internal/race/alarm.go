package race

import (
	"sync"
	"time"
)

// Alarm is one timer that many races share. It runs Wake of each waiter when the first hedge of the
// waiter's race is due. The zero Alarm is ready for use, and safe for concurrent use.
//
// Sharing saves time: a call that ends before its hedge is due costs two short lock sections. A
// runtime timer per call costs more, because a timer due within a millisecond interrupts a thread
// that waits for the network. For the same reason the timer stops when no call is left, and is not
// reset when another call ends.
type Alarm struct {
	mu      sync.Mutex
	timer   *time.Timer // nil until first needed
	firesAt time.Time   // zero while the timer is not armed
	root    Waiter      // of a ring, sorted by time: later is the first waiter, and earlier the last
}

// Waiter is one entry of an [Alarm]. Set Waker before the call of [Alarm.Set]. An interface saves
// the allocation of a method value.
type Waiter struct {
	// Wake runs on a goroutine of its own at the waiter's time.
	Waker interface{ Wake() }

	at             time.Time
	waiting        bool
	earlier, later *Waiter
}

// maxSteps bounds the search of Set, from the end of the list, for the place of a new waiter. It is
// near the end: calls of one method have nearly the same delay, unless that has just become much
// shorter.
const maxSteps = 8

// Set makes w.Wake run at the time at, which is delay from now. It returns false, and does not add
// w, if more than maxSteps waiters are due after w: a longer search would delay other calls. The
// caller then uses its own timer. w must not be waiting.
func (a *Alarm) Set(w *Waiter, at time.Time, delay time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.root.later == nil {
		a.root.earlier, a.root.later = &a.root, &a.root
	}
	before := a.root.earlier
	for steps := 0; before != &a.root && before.at.After(at); steps++ {
		if steps == maxSteps {
			return false
		}
		before = before.earlier
	}
	w.at, w.waiting, w.earlier, w.later = at, true, before, before.later
	before.later.earlier = w
	before.later = w
	if a.firesAt.IsZero() || at.Before(a.firesAt) {
		a.arm(at, delay)
	}
	return true
}

// Cancel removes w and reports whether w was waiting. If not, Wake is running, has run, or was
// never set to run.
func (a *Alarm) Cancel(w *Waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.waiting {
		return false
	}
	w.remove()
	if a.root.later == &a.root {
		if a.timer != nil {
			a.timer.Stop()
		}
		a.firesAt = time.Time{}
	}
	return true
}

// fire runs Wake of every waiter that is due, the last one on the timer's own goroutine.
func (a *Alarm) fire() {
	a.mu.Lock()
	now := time.Now()
	var wake interface{ Wake() }
	for w := a.root.later; w != &a.root && !w.at.After(now); w = a.root.later {
		w.remove()
		if wake != nil {
			go wake.Wake()
		}
		wake = w.Waker
	}
	a.firesAt = time.Time{}
	if first := a.root.later; first != &a.root {
		a.arm(first.at, first.at.Sub(now))
	}
	a.mu.Unlock()
	if wake != nil {
		wake.Wake()
	}
}

// arm sets the timer to fire at the time at, which is d from now. a.mu must be held.
func (a *Alarm) arm(at time.Time, d time.Duration) {
	a.firesAt = at
	switch {
	case d > 0 && a.timer != nil:
		a.timer.Reset(d)
	case d > 0:
		a.timer = time.AfterFunc(d, a.fire)
	default: // see after
		go a.fire()
	}
}

// remove takes w out of its ring. The alarm's mu must be held.
func (w *Waiter) remove() {
	w.earlier.later, w.later.earlier = w.later, w.earlier
	w.waiting, w.earlier, w.later = false, nil, nil
}
