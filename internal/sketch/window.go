// Package sketch is the histogram of latencies and its mathematics: windows, distributions, survival functions, counts and
// DDSketches. The public package sketch is its face.
//
// Any number of goroutines record into a window without a lock, and any number read it. A quantile is within 1% of the latency that
// it stands for, from 1 µs to 10 min. A call that was cut short is recorded as a lower bound, and does not bias the quantiles: see
// [Distribution].
//
// It uses the buckets of DDSketch (Masson, Rim and Lee, "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with
// Relative-Error Guarantees", VLDB 2019). The counts are this package's own, so that recording is one atomic addition.
package sketch

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

const (
	steps = 15        // with more, a window would forget more evenly, for a sixteenth more memory each
	slots = steps + 1 // while one step records, fifteen are kept whole
)

// Window is the window of the public package, which says what it promises. It forgets in fifteen steps. Each step has a slot of its
// own, so that a recorder that falls behind, for however long, never counts into another step. When the clock was set back, the
// slots of the old time make way one by one.
//
// Memory is allocated as it is needed: 180 bytes for an empty window, 750 with one observation, 17 KB when latencies spread
// evenly over one decade in every step, and at most 140 KB. Recording allocates for the first record of a step, and for the
// first in a range of 64 buckets. A bucket counts up to 2³² records in one step, and starts again from 0 at that.
//
// All methods may be called concurrently, and none ever waits for another.
type Window struct {
	step   time.Duration
	keep   int64 // calls that stay whatever their age; 0: none
	origin atomic.Pointer[time.Time]
	held   atomic.Int64 // steps that began no slot, because the one before held few calls
	ring   [slots]atomic.Pointer[slot]
}

// slot counts what was recorded in one step, or in several where it held few calls.
type slot struct {
	epoch    int64
	last     atomic.Int64 // the latest step that was counted, held ones included
	observed counters
	bounded  counters
}

// New returns an empty window, from which observations start to leave at the age given, at least a millisecond.
func New(window time.Duration) *Window { return &Window{step: max(window, time.Millisecond) / steps} }

// Record records that a call was answered at now, having taken d, or, if it was not answered, that it took longer: it was cut short
// at the age d.
func (w *Window) Record(now time.Time, d time.Duration, answered bool) {
	s := w.slot(now)
	switch {
	case s == nil:
	case answered:
		s.observed.add(Bucket(d))
	default:
		s.bounded.add(Bucket(d))
	}
}

// Snapshot returns the distribution of what is in the window at now. It takes 5 to 30 µs and allocates at most 32 KB,
// the more the further latencies spread. Each record made meanwhile is either in it or not.
func (w *Window) Snapshot(now time.Time) *Distribution {
	return w.distribution(now, math.MinInt64, math.MaxInt64)
}

// Steps returns the distributions of the steps that are in the window at now, by number. Those without a record are not among
// them. The steps of two windows of the same length have the same numbers at the same time if both were first used at one time.
func (w *Window) Steps(now time.Time) map[int64]*Distribution {
	all := map[int64]*Distribution{}
	var present [slots]*slot
	for _, s := range w.present(now, &present) {
		if d := w.distribution(now, s.epoch, s.epoch); d.Total() > 0 {
			all[s.epoch] = d
		}
	}
	return all
}

// Mark is a moment in the life of a window, at which a slot began to count.
type Mark int64

// Split returns what is in the window at now in two parts: what was recorded before a mark, and what since then. Neither
// reaches further back than from.
func (w *Window) Split(now time.Time, from, at Mark) (before, since *Distribution) {
	return w.distribution(now, int64(from), int64(at)-1), w.distribution(now, int64(max(from, at)), math.MaxInt64)
}

// Mark returns the mark of the step that a time lies in.
func (w *Window) Mark(at time.Time) Mark { return Mark(w.epoch(at) - w.held.Load()) }

// Step is the time after which the next slot takes over: a fifteenth of the window.
func (w *Window) Step() time.Duration { return w.step }

// distribution adds up the slots from first to last that are in the window at now. Steps later than the caller's count too,
// as a recorder may have read the clock after the caller did.
func (w *Window) distribution(now time.Time, first, last int64) *Distribution {
	var t tally
	var present [slots]*slot
	for _, s := range w.present(now, &present) {
		if first <= s.epoch && s.epoch <= last {
			s.observed.addTo(&t.answered)
			s.bounded.addTo(&t.cut)
		}
	}
	return t.distribution()
}

// present returns the slots that are in the window at now, the newest first. If it keeps calls, these are the ones in which
// something was counted within the window, and of those before as many as hold the rest of the calls to keep.
func (w *Window) present(now time.Time, room *[slots]*slot) []*slot {
	step, all := w.epoch(now), w.all(room)
	if w.keep == 0 {
		return slices.DeleteFunc(all, func(s *slot) bool { return s.epoch < step-steps || s.epoch > step+steps })
	}
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

// all returns the slots that there are, the newest first.
func (w *Window) all(room *[slots]*slot) []*slot {
	all := room[:0]
	for i := range w.ring {
		if s := w.ring[i].Load(); s != nil {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *slot) int { return cmp.Compare(b.epoch, a.epoch) })
	return all
}

// slot returns the slot of now's step, or nil if a later step has taken its place.
func (w *Window) slot(now time.Time) *slot {
	step := w.epoch(now)
	epoch := step - w.held.Load()
	if s := w.place(epoch).Load(); s != nil && s.epoch == epoch {
		return s
	}
	if w.keep > 0 {
		return w.beginKeeping(step)
	}
	return w.begin(epoch, epoch)
}

// place is where the slot of an epoch belongs.
func (w *Window) place(epoch int64) *atomic.Pointer[slot] {
	return &w.ring[uint64(epoch-math.MinInt64)%slots] // epochs before the origin are negative
}

// begin puts a new slot in the place of an epoch, unless it finds the epoch's own or the one that follows it there. The latter
// means that the caller is late. A slot from yet later is left over from before the clock was set back.
func (w *Window) begin(epoch, step int64) *slot {
	place := w.place(epoch)
	for {
		old := place.Load()
		switch {
		case old == nil:
		case old.epoch == epoch:
			return old
		case old.epoch == epoch+slots:
			return nil
		case old.epoch > epoch && w.keep > 0: // its epochs do not go by the clock, and never back
			return old
		}
		s := &slot{epoch: epoch}
		s.last.Store(step)
		if place.CompareAndSwap(old, s) {
			return s
		}
	}
}

// epoch returns the number of now's step, counted from the origin.
func (w *Window) epoch(now time.Time) int64 {
	origin := w.origin.Load()
	if origin == nil {
		first := now
		w.origin.CompareAndSwap(nil, &first)
		origin = w.origin.Load()
	}
	t := now.Sub(*origin)
	if t < 0 {
		return int64((t+1)/w.step) - 1 // rounded down, without overflow
	}
	return int64(t / w.step)
}
