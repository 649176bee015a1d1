package sketch

import (
	"slices"
	"time"
)

const (
	longestKept = 720 // windows that calls are kept for at most: six hours in one of 30 s
	fewest      = 16  // calls that make a part of the kept ones which can be told from the others
)

// NewKeeping returns an empty window as [NewIn] does, in which the last calls stay whatever their age, up to 720 windows: so
// many, or a fifteenth more. Calls older than the window leave only as newer ones come in their place.
//
// It has no more slots than another. A step begins a slot only if the one before holds its share of the calls to keep, and
// otherwise goes on in that one.
func NewKeeping(m *Meter, window time.Duration, calls int) *Window {
	w := NewIn(m, window)
	w.keep = int64(calls)
	return w
}

// beginKeeping returns the slot that a call is to be counted in which was recorded in the given step, for which there is none.
func (w *Window) beginKeeping(step int64) *slot {
	for {
		held := w.held.Load()
		newest := w.newest()
		if newest == nil {
			return w.begin(step-held, step)
		}
		switch behind := step - held - newest.epoch; {
		case behind == 0:
			return newest
		case behind < 0 && behind > -slots:
			// A recorder that is late. Its call counts in its own slot, or as one of now where that is not there any more.
			if s := w.place(step - held).Load(); s != nil && s.epoch == step-held {
				return s
			}
			return newest
		case behind < 0, newest.calls(w.keep/steps) < w.keep/steps:
			// The clock was set back, or the slot goes on.
			if w.held.CompareAndSwap(held, held+behind) {
				newest.last.Store(step)
				return newest
			}
		case behind > 1: // steps without a call must not push others out
			w.held.CompareAndSwap(held, held+behind-1)
		default:
			return w.begin(newest.epoch+1, step)
		}
	}
}

// newest returns the slot that began last; nil if there is none.
func (w *Window) newest() *slot {
	var newest *slot
	for i := range w.ring {
		if s := w.ring[i].Load(); s != nil && (newest == nil || s.epoch > newest.epoch) {
			newest = s
		}
	}
	return newest
}

// calls returns how many calls a slot holds, or some number from most on if there are more.
func (s *slot) calls(most int64) int64 {
	n := s.observed.total(most)
	if n < most {
		n += s.bounded.total(most)
	}
	return n
}

// kept is present of a window that keeps calls: the slots in which something was counted within the window, and of those
// before as many as hold the rest of the calls to keep. The newest is the first.
func (w *Window) kept(now time.Time, room *[slots]*slot) []*slot {
	step, all := w.epoch(now), room[:0]
	for i := range w.ring {
		if s := w.ring[i].Load(); s != nil {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *slot) int { return int(b.epoch - a.epoch) })
	newer := int64(0)
	for i, s := range all {
		last := s.last.Load()
		if last < step-steps && (newer >= w.keep || last < step-longestKept*steps) {
			return all[:i]
		}
		newer += s.calls(w.keep)
	}
	return all
}

// Newest returns the mark from which on the newest calls were counted: those of the last step, or, where these are few, of the last
// slot, with the one before if that holds hardly any.
func (w *Window) Newest(now time.Time) Mark {
	var room [slots]*slot
	step, all := w.epoch(now), w.kept(now, &room)
	calls, mark := int64(0), w.Mark(now)
	for i, s := range all {
		switch {
		case s.last.Load() >= step-1: // of the last step
		case i == 0 || calls < fewest: // few came lately
		default:
			return mark
		}
		calls, mark = calls+s.calls(fewest), Mark(s.epoch)
	}
	return mark
}
