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
	mu          sync.Mutex
	timer       *time.Timer // nil until first needed
	firesAt     time.Time   // zero while the timer is not armed
	first, last *Waiter     // a list, sorted by time
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
	before := a.last
	for steps := 0; before != nil && before.at.After(at); steps++ {
		if steps == maxSteps {
			return false
		}
		before = before.earlier
	}
	w.at, w.waiting = at, true
	a.insert(w, before)
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
	a.remove(w)
	return true
}

// fire runs Wake of every waiter that is due. It runs on the timer's goroutine, and uses that goroutine for the last one.
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
	a.firesAt = time.Time{}
	if a.first != nil {
		a.arm(a.first.at, a.first.at.Sub(now))
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

// insert adds w to the list after the waiter before, or at the front if before is nil. The lock must be held.
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

// remove removes w from the list. The lock must be held.
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
