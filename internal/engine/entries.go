package engine

import (
	"container/list"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/budget"
)

// A method without a call for idleAfter leaves with all that was learned of it. Leaving needs no goroutine: some call
// looks for idle ones, at most once in sweepEvery.
const (
	idleAfter  = 15 * time.Minute
	sweepEvery = time.Minute
)

// entries are the methods of all targets, in the order in which they are considered for leaving. All of it is guarded by
// Engine.mu. Calls do not touch it: that a method was called since it was last considered shows in its counters.
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

	swept     int64         // activity when idle methods were last looked for
	idleSince time.Duration // after the engine's epoch, to the minute
}

func (e *entries) add(m *method, at time.Duration) {
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
// to do it again. e.mu is held.
func (e *Engine) makeRoom() {
	if e.memory.Bytes() <= e.config.MaxMemory {
		return
	}
	e.entries.crowded = true
	for e.memory.Bytes() > e.config.MaxMemory-e.config.MaxMemory/256 {
		m := e.entries.leastUsed()
		if m == nil {
			return
		}
		e.remove(m)
	}
}

// removeIdle has methods without a recent call leave.
func (e *Engine) removeIdle(at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.entries.each(func(m *method) {
		if activity := m.counters.activity(); activity != m.entry.swept {
			m.entry.swept, m.entry.idleSince = activity, at
		} else if at-m.entry.idleSince > idleAfter {
			e.remove(m)
		}
	})
}

// remove lets go of a method, and of its target if it was the last one there. e.mu is held.
func (e *Engine) remove(m *method) {
	e.entries.remove(m)
	m.target.methods.Delete(m.name)
	m.memory.Release()
	m.counters.leave()
	t := m.target
	if t.count--; t.count == 0 {
		e.forget(t)
		e.targets.Delete(t.name)
		e.memory.Add(-t.bytes())
	}
}

// What an entry takes beside its windows, in bytes: rounded up, as allocations are, and with its share of the maps.
const (
	word        = int64(unsafe.Sizeof(uintptr(0)))
	mapShare    = 16 * word
	mapBytes    = 32 * word // of a target's methods
	estimates   = 384       // of the trigger
	timerBytes  = 16 * word // of the alarm
	methodBytes = (int64(unsafe.Sizeof(method{}))+127)/128*128 + int64(unsafe.Sizeof(list.Element{})) + mapShare + estimates + timerBytes
	targetBytes = int64(unsafe.Sizeof(target{})) + int64(unsafe.Sizeof(budget.Bucket{})) + mapShare + mapBytes
)

func (m *method) bytes() int64 { return methodBytes + allocated(m.name) }

func (t *target) bytes() int64 { return targetBytes + allocated(t.name) }

// allocated is what a string takes, roughly.
func allocated(s string) int64 { return int64(len(s)+len(s)/8) + 16 }
