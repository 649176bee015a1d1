package sketch

import "time"

const (
	longestKept = 720 // windows for which a call is kept at most: six hours if the window is 30 s
	minCalls    = 16  // the smallest number of calls that is compared with the others
)

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

// beginKeeping returns the slot for a call recorded in a step without a slot of its own.
func (w *Window) beginKeeping(step int64) *slot {
	var room [slots]*slot
	for {
		held, all := w.held.Load(), w.all(&room)
		if len(all) == 0 {
			return w.begin(step-held, step)
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
			return w.begin(next, step)
		default:
			newest.last.Store(step)
			return newest
		}
	}
}

// calls returns the number of calls in a slot, or any number of at least most if there are more.
func (s *slot) calls(most int64) int64 { return s.observed.total(most) + s.bounded.total(most) }

// Newest returns the mark at which the most recent sample begins: the last step, or the last one or
// two slots if that step holds fewer than minCalls. If took > 0, the sample begins took earlier, so
// that it includes the calls that started with the slow ones.
func (w *Window) Newest(now time.Time, took time.Duration) Mark {
	var room [slots]*slot
	step, all := w.epoch(now), w.present(now, &room)
	calls, mark := int64(0), w.Mark(now)
	if took > 0 && len(all) > 0 {
		step = min(step, all[0].last.Load()) - int64(took/w.step)
	}
	for i, s := range all {
		if s.last.Load() < step-1 && i > 0 && calls >= minCalls { // it is from before the last step, and enough came since
			return mark
		}
		calls, mark = calls+s.calls(minCalls), Mark(s.epoch)
	}
	return mark
}
