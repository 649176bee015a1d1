package sketch

import "time"

const longestKept = 720 // windows for which a call is kept at most: six hours if the window is 30 s

// NewKeeping returns an empty window like [New], which keeps the given number of calls, or up to a
// fifteenth more, whatever their age, for up to 720 windows. Calls older than the window leave only
// as newer calls replace them.
//
// The number of slots is the same. A step begins a slot only if the previous slot holds its share
// of the calls to keep; otherwise the previous slot continues. A call in a step that has left the
// window counts in the newest slot.
func NewKeeping(window time.Duration, calls int) *Window {
	w := New(window)
	w.keep = int64(calls)
	return w
}

// beginKeeping returns the slot for a call recorded in a step without a slot of its own, which began
// in the step began.
func (w *Window) beginKeeping(step, began int64) *slot {
	var room [slots]*slot
	for {
		held, all := w.held.Load(), w.all(&room)
		if len(all) == 0 {
			return w.begin(step-held, began, step)
		}
		newest := all[0]
		behind := step - held - newest.epoch
		if -slots < behind && behind <= 0 {
			return newest // another recorder began it, or this one is late and its own slot is gone
		}
		next := newest.epoch // the slot goes on if it holds few calls, or the clock was set back
		if behind > 0 && newest.calls(w.keep/steps) >= w.keep/steps {
			next++ // by one, whatever the number of steps without a call: empty steps must not push out calls
		}
		switch {
		case !w.held.CompareAndSwap(held, step-next):
		case next > newest.epoch:
			return w.begin(next, max(began, newest.last.Load()+1), step)
		default:
			newest.last.Store(step)
			return newest
		}
	}
}

// calls returns the number of calls in a slot, or any number of at least most if there are more.
func (s *slot) calls(most int64) int64 { return s.observed.total(most) + s.bounded.total(most) }

// Newest returns the marks between which the newest calls are that began at least age ago: the
// calls of the last steps of that number, complete or not, and of earlier slots until there are
// least calls.
func (w *Window) Newest(now time.Time, age time.Duration, least int64, steps int) (from, to Mark) {
	var room [slots]*slot
	step, calls, from, to := w.epoch(now), int64(0), Latest, Latest
	if age > 0 {
		step = w.epoch(now.Add(-age)) - 1
	}
	for _, s := range w.present(now, &room) {
		switch last := s.last.Load(); {
		case age > 0 && last > step:
			from, to = Mark(s.epoch), Mark(s.epoch)
			continue
		case calls >= least && last < step-int64(steps):
			return from, to
		}
		calls, from = calls+s.calls(least), Mark(s.epoch)
	}
	return from, to
}
