// Package sketch implements the histogram of latencies and its mathematics: windows, distributions,
// survival functions, counts and DDSketches. The public package sketch wraps and describes it. The
// counters are this package's own, so that recording is one atomic addition.
package sketch

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/DataDog/sketches-go/ddsketch/mapping"
)

const (
	// Steps is the number of steps in which a window forgets.
	Steps = 15
	slots = Steps + 1 // one records, the others are complete
)

// Window implements the public package's window and keeps its contract. Each step has its own slot,
// so that a recorder that falls behind never counts into another step. After the clock is set back,
// the slots of the old time are replaced one by one.
//
// Recording allocates for the first call of a step and for the first call in a range of 64 buckets:
// 750 bytes with one observation, 17 KB if latencies spread evenly over a decade in every step. A
// bucket's counter wraps at 2³² calls per step.
type Window struct {
	step   time.Duration
	keep   int64 // calls that are kept whatever their age; 0: none
	origin atomic.Pointer[time.Time]
	held   atomic.Int64 // steps that began no slot, because the previous one held few calls
	ring   [slots]atomic.Pointer[slot]
}

// slot counts the calls of one step, or of several if they held few calls.
type slot struct {
	number   int64
	first    int64        // the step that it began with
	last     atomic.Int64 // the latest step that was counted, held ones included
	observed counters
	bounded  counters
}

// New returns an empty window. Observations begin to leave it at the given age, at least a
// millisecond.
func New(window time.Duration) *Window { return &Window{step: max(window, time.Millisecond) / Steps} }

// Record records a call that ended at now: answered with latency d, or cut short at age d, so that
// its latency is greater.
func (w *Window) Record(now time.Time, d time.Duration, answered bool) {
	step := w.stepNumber(now)
	w.slot(step, step).record(d, answered)
}

// RecordByStart records like Record, but in the slot of the step in which the call began, unless
// newer slots have replaced that slot.
func (w *Window) RecordByStart(now time.Time, d time.Duration, answered bool) {
	began := w.stepNumber(now.Add(-d))
	s := w.slot(w.stepNumber(now), began)
	if s != nil && began < s.first {
		var room [slots]*slot
		for _, older := range w.all(&room) {
			if older.first <= began {
				s = older
				break
			}
		}
	}
	s.record(d, answered)
}

func (s *slot) record(d time.Duration, answered bool) {
	switch {
	case s == nil:
	case answered:
		s.observed.add(Bucket(d))
	default:
		s.bounded.add(Bucket(d))
	}
}

// Snapshot returns the distribution of the window at now, in 5 to 30 µs and up to 32 KB. A
// concurrent record is either included or not.
func (w *Window) Snapshot(now time.Time) *Distribution {
	return w.Between(now, math.MinInt64, Latest)
}

// Steps returns the distributions of the window's non-empty steps at now, by step number. Two
// windows of the same length, first used at the same time, number their steps identically.
func (w *Window) Steps(now time.Time) map[int64]*Distribution {
	all := map[int64]*Distribution{}
	var present [slots]*slot
	for _, s := range w.present(now, &present) {
		if d := w.Between(now, Mark(s.number), Mark(s.number+1)); d.Total() > 0 {
			all[s.number] = d
		}
	}
	return all
}

// Mark is the moment at which a slot of a window began to count.
type Mark int64

// Latest is a mark after all slots.
const Latest Mark = math.MaxInt64

// Between returns the distribution of the window at now, of the slots that began at from or later, and
// before to.
func (w *Window) Between(now time.Time, from, to Mark) *Distribution {
	var t tally
	var present [slots]*slot
	for _, s := range w.present(now, &present) {
		if at := Mark(s.number); from <= at && at < to {
			s.observed.addTo(&t.answered, 1)
			s.bounded.addTo(&t.cut, 1)
		}
	}
	return t.distribution()
}

// Mark returns the mark of the step that contains at.
func (w *Window) Mark(at time.Time) Mark { return Mark(w.stepNumber(at) - w.held.Load()) }

func (w *Window) Step() time.Duration { return w.step }

// Answered returns the distribution of the answers of the last window, in windows of the same
// length; nil windows are ignored. A slot that began before counts in part: that of a keeping window
// may have begun long before.
func Answered(now time.Time, windows ...*Window) *Distribution {
	var t tally
	for _, w := range windows {
		if w == nil {
			continue
		}
		var room [slots]*slot
		now, all := w.stepNumber(now), w.all(&room)
		for _, s := range all {
			if last := s.last.Load(); now-Steps <= last && last <= now+Steps {
				within := last - max(s.first, now-Steps) + 1
				s.observed.addTo(&t.answered, min(float64(within)/float64(max(last-s.first+1, 1)), 1))
			}
		}
	}
	return t.distribution()
}

// present returns the slots in the window at now, the newest first, and of a keeping window as many
// older slots as hold the rest of the calls to keep.
func (w *Window) present(now time.Time, room *[slots]*slot) []*slot {
	step, all := w.stepNumber(now), w.all(room)
	if w.keep == 0 {
		return slices.DeleteFunc(all, func(s *slot) bool { return s.number < step-Steps || s.number > step+Steps })
	}
	newer := int64(0)
	for i, s := range all {
		last := s.last.Load()
		if last < step-Steps && (newer >= w.keep || last < step-longestKept*Steps) {
			return all[:i]
		}
		newer += s.calls(w.keep)
	}
	return all
}

// all returns the slots, the newest first.
func (w *Window) all(room *[slots]*slot) []*slot {
	all := room[:0]
	for i := range w.ring {
		if s := w.ring[i].Load(); s != nil {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *slot) int { return cmp.Compare(b.number, a.number) })
	return all
}

// slot returns the slot of a step, or nil if a later step has replaced it. A new slot of a keeping
// window begins with the step began, or right after the previous slot.
func (w *Window) slot(step, began int64) *slot {
	slotNumber := step - w.held.Load()
	if s := w.place(slotNumber).Load(); s != nil && s.number == slotNumber {
		return s
	}
	if w.keep > 0 {
		return w.beginKeeping(step, min(began, step))
	}
	return w.begin(slotNumber, slotNumber, slotNumber)
}

func (w *Window) place(slotNumber int64) *atomic.Pointer[slot] {
	return &w.ring[uint64(slotNumber-math.MinInt64)%slots] // slot numbers before the origin are negative
}

// begin puts a new slot in the ring entry of a slot number, unless it finds the number's own slot
// there, or the following one, which means that the caller is late. A slot with a still later number
// is left over from before the clock was set back.
func (w *Window) begin(slotNumber, first, step int64) *slot {
	place := w.place(slotNumber)
	for {
		old := place.Load()
		switch {
		case old == nil:
		case old.number == slotNumber:
			return old
		case old.number == slotNumber+slots:
			return nil
		case old.number > slotNumber && w.keep > 0: // its slot numbers do not follow the clock, and never go back
			return old
		}
		s := &slot{number: slotNumber, first: first}
		s.last.Store(step)
		if place.CompareAndSwap(old, s) {
			return s
		}
	}
}

// stepNumber returns the number of now's step, counted from the origin.
func (w *Window) stepNumber(now time.Time) int64 {
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

// longestKept is the greatest age of a kept call, in windows: six hours if the window is 30 s.
const longestKept = 720

// NewKeeping returns an empty window like [New] that keeps the given number of calls, or up to a
// fifteenth more, regardless of age, for up to 720 windows. Calls older than the window leave only as
// newer calls replace them. A step begins a slot only if the previous slot holds its share of the calls
// to keep.
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
		behind := step - held - newest.number
		if -slots < behind && behind <= 0 {
			return newest // another recorder began it, or this one is late and its own slot is gone
		}
		next := newest.number // the slot goes on if it holds few calls, or the clock was set back
		if behind > 0 && newest.calls(w.keep/Steps) >= w.keep/Steps {
			next++ // by one, whatever the number of steps without a call: empty steps must not push out calls
		}
		switch {
		case !w.held.CompareAndSwap(held, step-next):
		case next > newest.number:
			return w.begin(next, max(began, newest.last.Load()+1), step)
		default:
			newest.last.Store(step)
			return newest
		}
	}
}

// calls counts no further than most, as does counters.total.
func (s *slot) calls(most int64) int64 { return s.observed.total(most) + s.bounded.total(most) }

// Newest returns the marks that enclose the newest calls that began at least age ago: the calls of
// the last step, complete or not, and of earlier slots until there are least calls.
func (w *Window) Newest(now time.Time, age time.Duration, least int64) (from, to Mark) {
	var room [slots]*slot
	step, calls, from, to := w.stepNumber(now), int64(0), Latest, Latest
	if age > 0 {
		step = w.stepNumber(now.Add(-age)) - 1
	}
	for _, s := range w.present(now, &room) {
		switch last := s.last.Load(); {
		case age > 0 && last > step:
			from, to = Mark(s.number), Mark(s.number)
			continue
		case calls >= least && last < step-1:
			return from, to
		}
		calls, from = calls+s.calls(least), Mark(s.number)
	}
	return from, to
}

const (
	accuracy = 0.01
	shortest = time.Microsecond
	longest  = 10 * time.Minute

	pageSize = 64
	pages    = 16

	// Buckets is the number of buckets, numbered from 0. 1,022 of them cover 1 µs to 10 min at this
	// accuracy.
	Buckets = pages * pageSize
)

// The cubically interpolated logarithm needs 1% more buckets than an exact one, and a third of the
// time.
var (
	index, _ = mapping.NewCubicallyInterpolatedMapping(accuracy) // no error, as it is between 0 and 1
	// firstBin is the mapping's index of bucket 0.
	firstBin = index.Index(float64(shortest))
)

// Bucket returns the bucket that a latency is counted in.
func Bucket(d time.Duration) int {
	return index.Index(float64(min(max(d, shortest), longest))) - firstBin
}

// latencyOf returns a latency that is within 1% of every latency in the bucket.
func latencyOf(bucket int) time.Duration {
	return min(time.Duration(math.Round(float64(edges[bucket])*(1+accuracy))), longest)
}

// edges are the latencies at which buckets begin, and the end of the last one, found by bisection:
// the mapping's own LowerBound overflows on 32-bit machines.
var edges = func() (edges [Buckets + 1]time.Duration) {
	edges[0] = shortest
	for bucket := range Buckets {
		from := edges[bucket]
		to := min(from+from/32, longest) // a bucket is 2% wide
		for from < to {
			if middle := (from + to) / 2; Bucket(middle) > bucket {
				to = middle
			} else {
				from = middle + 1
			}
		}
		edges[bucket+1] = from
	}
	return edges
}()

// UpperEdge returns the latency at which a bucket ends. All latencies in the bucket are shorter.
func UpperEdge(bucket int) time.Duration { return edges[bucket+1] }

// counters has one counter per bucket, in pages that are allocated on first use.
type counters [pages]atomic.Pointer[page]

type page [pageSize]atomic.Uint32

func (c *counters) add(bucket int) {
	p := c[bucket/pageSize].Load()
	if p == nil {
		p = c.grow(bucket / pageSize)
	}
	p[bucket%pageSize].Add(1)
}

func (c *counters) grow(i int) *page {
	c[i].CompareAndSwap(nil, new(page))
	return c[i].Load()
}

// addTo adds a part of each count, 0 to 1, to totals.
func (c *counters) addTo(totals *[Buckets]float64, part float64) {
	for i := range c {
		if p := c[i].Load(); p != nil {
			for j := range p {
				totals[i*pageSize+j] += part * float64(p[j].Load())
			}
		}
	}
}

// total returns the number of counted calls, or a number from most on if there are more.
func (c *counters) total(most int64) int64 {
	n := int64(0)
	for i := 0; i < len(c) && n < most; i++ {
		if p := c[i].Load(); p != nil {
			for j := range p {
				n += int64(p[j].Load())
			}
		}
	}
	return n
}
