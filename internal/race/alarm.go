package race

import (
	"sync"
	"time"
)

// Alarm is one timer that many races share. It runs a function for each race when the first hedge of that race is due.
//
// Sharing saves time: a call that ends before its hedge is due costs two short lock sections. A runtime timer for each call
// would cost more, because a timer that is due within a millisecond interrupts a thread that waits for the network.
//
// The timer is neither stopped nor set again when a call ends: both would interrupt such a thread more often than a timer
// that fires once in a delay for nothing. It is then armed again only if another call is waiting. So it fires at most one
// delay after the last call. The zero Alarm is ready for use. All methods may be called concurrently.
type Alarm struct {
	mu      sync.Mutex
	timer   *time.Timer // nil until first needed
	firesAt time.Time   // zero while the timer is not armed
	root    Waiter      // of a ring, sorted by time: later is the first waiter, and earlier the last
}

// Waiter is one entry of an [Alarm]. Set Wake before passing it to [Alarm.Set].
type Waiter struct {
	// Wake runs on a goroutine of its own at the waiter's time.
	Wake func()

	at             time.Time
	waiting        bool
	earlier, later *Waiter
}

// maxSteps bounds how many waiters Set passes over, from the end of the list, to find the place of a new one. Calls of one
// method have nearly the same delay, so a new one belongs near the end, unless the delay has just become much shorter.
const maxSteps = 8

// Set runs w.Wake at the given time, which is delay from now. It returns false, and does not add w, if more than maxSteps
// waiters are due after w: a longer search would delay every other call. The caller must then use a timer of its own.
// w must not be waiting already.
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

// Cancel removes w and reports whether it was waiting. If it was not, Wake is running, has run, or was never set to run.
func (a *Alarm) Cancel(w *Waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !w.waiting {
		return false
	}
	w.remove()
	return true
}

// fire runs Wake of every waiter that is due. It runs on the timer's goroutine, and uses that goroutine for the last one.
func (a *Alarm) fire() {
	a.mu.Lock()
	now := time.Now()
	var wake func()
	for w := a.root.later; w != &a.root && !w.at.After(now); w = a.root.later {
		w.remove()
		if wake != nil {
			go wake()
		}
		wake = w.Wake
	}
	a.firesAt = time.Time{}
	if first := a.root.later; first != &a.root {
		a.arm(first.at, first.at.Sub(now))
	}
	a.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// arm sets the timer to fire at the given time, which is d from now. The lock must be held.
func (a *Alarm) arm(at time.Time, d time.Duration) {
	a.firesAt = at
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.fire)
		return
	}
	a.timer.Reset(d)
}

// remove takes w out of its ring. The lock must be held.
func (w *Waiter) remove() {
	w.earlier.later, w.later.earlier = w.later, w.earlier
	w.waiting, w.earlier, w.later = false, nil, nil
}
