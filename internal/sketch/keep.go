package sketch

import "time"

const (
	longestKept = 720 // windows that calls are kept for at most: six hours in one of 30 s
	minCalls    = 16  // calls that make a part of the kept ones which can be told from the others
)

// NewKeeping returns an empty window as [New] does, in which the last calls stay whatever their age, up to 720 windows: so
// many, or a fifteenth more. Calls older than the window leave only as newer ones come in their place.
//
// It has no more slots than another. A step begins a slot only if the one before holds its share of the calls to keep, and
// otherwise goes on in that one. A call whose step is forgotten counts in the newest slot.
func NewKeeping(window time.Duration, calls int) *Window {
	w := New(window)
	w.keep = int64(calls)
	return w
}

// beginKeeping returns the slot for a call that was recorded in a step without a slot of its own.
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
			return newest // another recorder began it, or this one is so late that its own is not there any more
		}
		next := newest.epoch // the slot goes on if it holds few calls, or the clock was set back
		if behind > 0 && newest.calls(w.keep/steps) >= w.keep/steps {
			next++ // however many steps without a call there were: they must not push others out
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

// calls returns how many calls a slot holds, or some number from most on if there are more.
func (s *slot) calls(most int64) int64 { return s.observed.total(most) + s.bounded.total(most) }

// Newest returns the mark from which on the newest calls were counted: the calls of the last step. If these are few, it is the last
// slot, and the one before too if the last holds hardly any. For calls that took so long, those of when they began are among them.
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
