package hedge

import (
	"container/list"
	"fmt"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/budget"
)

const (
	defaultMemory = 64 << 20
	minMemory     = 1 << 20
)

// WithMaxMemory bounds what a scheduler remembers, in bytes of live heap: 1 MiB or more; the default is 64 MiB. While the
// bound is exceeded the methods that are used least leave with all that was learned of them, and a target leaves with its
// last method. Their calls stay counted in [Stats]. A method that is called again after it has left is learned anew.
//
// Methods that were called once leave first, the oldest of them first; then those that were not called for longest,
// approximately. So method names that are made up, however many, do not displace methods in use.
//
// A method takes about 2 KB when it has had a few calls, 10 to 40 KB while it is called many times a second, the wider its
// latencies spread the more, and 280 KB at the very most; a target takes 700 bytes. So the default has room for about
// 30,000 methods that are called seldom, or 2,000 busy ones. The garbage collector's own overhead comes on top, as with any
// live heap.
//
// To find a method that is not known takes a lock and a few microseconds. Where more methods are in use than there is room
// for, that is so for many calls, and methods leave before they are learned: allow for more memory.
func WithMaxMemory(bytes int64) Option {
	return func(c *config) error {
		if bytes < minMemory {
			return fmt.Errorf("hedge: WithMaxMemory(%d): the memory must be at least %d bytes", bytes, minMemory)
		}
		c.maxMemory = bytes
		return nil
	}
}

// A method without a call for idleAfter leaves with all that was learned of it. Leaving needs no goroutine: some call
// looks for idle ones, at most once in sweepEvery.
const (
	idleAfter  = 15 * time.Minute
	sweepEvery = time.Minute
)

// entries are the methods of all targets, in the order in which they are considered for leaving. All of it is guarded by
// Scheduler.mu. Calls do not touch it: that a method was called since it was last considered shows in its counters.
//
// A new method is fresh. When its turn comes it leaves if it was not called again, and is kept otherwise. Those kept are
// considered in turn; one that was called since its last turn has another. Fresh ones leave before any that is kept, unless
// they are fewer, so that a newcomer has the time to be called again.
type entries struct {
	fresh, kept list.List // of *method, next to be considered first
	crowded     bool      // one has left for want of memory
	names       int64     // bytes for what WithTargetName was asked about
}

// entry is the place of a method in entries.
type entry struct {
	element *list.Element
	fresh   bool
	seen    int64 // activity when it was last considered, the first call included

	swept     int64 // activity when idle methods were last looked for
	idleSince int64 // ns after the scheduler's epoch, to the minute
}

func (e *entries) add(m *method, at int64) {
	m.entry = entry{element: e.fresh.PushBack(m), fresh: true, seen: 1, idleSince: at}
}

func (e *entries) remove(m *method) {
	if m.entry.fresh {
		e.fresh.Remove(m.entry.element)
	} else {
		e.kept.Remove(m.entry.element)
	}
}

func (e *entries) each(visit func(*method)) {
	for _, l := range []*list.List{&e.fresh, &e.kept} {
		var next *list.Element
		for at := l.Front(); at != nil; at = next {
			next = at.Next() // before the visit, which may remove it
			visit(at.Value.(*method))
		}
	}
}

// leastUsed returns the method that is to leave next; nil if there is none.
func (e *entries) leastUsed() *method {
	// In the second round none has been called, but for those that are being called right now.
	for range 2 * (e.fresh.Len() + e.kept.Len()) {
		m := e.next()
		activity := m.counters.activity()
		if activity <= m.entry.seen {
			return m
		}
		e.remove(m)
		m.entry.element, m.entry.fresh, m.entry.seen = e.kept.PushBack(m), false, activity
	}
	return e.next()
}

// next returns the method that is to be considered next; nil if there is none.
func (e *entries) next() *method {
	l := &e.kept
	if e.fresh.Len() > e.kept.Len() {
		l = &e.fresh
	}
	if l.Len() == 0 {
		return nil
	}
	return l.Front().Value.(*method)
}

// makeRoom has methods leave until the memory is within its bound, and a little below so that the next one does not have
// to do it again. s.mu is held.
func (s *Scheduler) makeRoom() {
	if s.memory.Bytes() <= s.config.maxMemory {
		return
	}
	s.entries.crowded = true
	for s.memory.Bytes() > s.config.maxMemory-s.config.maxMemory/256 {
		m := s.entries.leastUsed()
		if m == nil {
			return
		}
		s.remove(m)
	}
}

// removeIdle has methods without a recent call leave.
func (s *Scheduler) removeIdle(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.each(func(m *method) {
		if activity := m.counters.activity(); activity != m.entry.swept {
			m.entry.swept, m.entry.idleSince = activity, at
		} else if at-m.entry.idleSince > int64(idleAfter) {
			s.remove(m)
		}
	})
}

// remove lets go of a method, and of its target if it was the last one there. s.mu is held.
func (s *Scheduler) remove(m *method) {
	s.entries.remove(m)
	m.target.methods.Delete(m.name)
	m.memory.Release()
	m.counters.leave()
	t := m.target
	if t.count--; t.count == 0 {
		s.forget(t)
		s.targets.Delete(t.name)
		s.memory.Add(-t.bytes())
	}
}

// What an entry takes beside its windows, in bytes: rounded up, as allocations are, and with its share of the maps.
const (
	word        = int64(unsafe.Sizeof(uintptr(0)))
	mapShare    = 16 * word
	mapBytes    = 32 * word // of a target's methods
	estimates   = 320       // of the trigger
	timerBytes  = 16 * word // of the alarm
	methodBytes = int64(unsafe.Sizeof(method{})) + int64(unsafe.Sizeof(list.Element{})) + mapShare + estimates + timerBytes
	targetBytes = int64(unsafe.Sizeof(target{})) + int64(unsafe.Sizeof(budget.Bucket{})) + mapShare + mapBytes
)

func (m *method) bytes() int64 { return methodBytes + allocated(m.name) }

func (t *target) bytes() int64 { return targetBytes + allocated(t.name) }

// allocated is what a string takes, roughly.
func allocated(s string) int64 { return int64(len(s)+len(s)/8) + 16 }
