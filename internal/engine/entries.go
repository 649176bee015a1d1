package engine

import (
	"container/list"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/budget"
)

// A method without a call for idleAfter is removed, with all that was learned of it. This needs no goroutine: once in
// sweepEvery, a call searches for idle methods.
const (
	idleAfter  = 15 * time.Minute
	sweepEvery = time.Minute
)

// entries are the methods of all targets, in the order in which they are considered for removal. Engine.mu guards all of it.
// Calls do not change it: the counters show whether a method was called since it was last considered.
//
// There are two lists, as in the second-chance algorithm. A new method is fresh. When it is considered, it is removed if it
// was called only once, and moves to the kept list otherwise. A kept method is removed if it was not called since it was
// last considered, and otherwise moves to the end of its list. The longer list is considered first, so that many methods
// that are called once do not displace kept ones, and a new method has time for a second call.
type entries struct {
	fresh, kept list.List // of *method; the first is considered next
	crowded     bool      // a method was removed because memory was short
	names       int64     // bytes of the keys of Engine.connections
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

// leastUsed returns the method to remove next; nil if there is none.
func (e *entries) leastUsed() *method {
	// Two rounds are enough: in the second, a method counts as used only if it was called since the first.
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

// next returns the method to consider next; nil if there is none.
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

// makeRoom removes methods until memory is a little below its bound, so that the next new method does not exceed it again.
// e.mu must be held.
func (e *Engine) makeRoom() {
	if e.memory.Bytes() <= e.config.Load().MaxMemory {
		return
	}
	e.entries.crowded = true
	for e.memory.Bytes() > e.config.Load().MaxMemory-e.config.Load().MaxMemory/256 {
		m := e.entries.leastUsed()
		if m == nil {
			return
		}
		e.remove(m)
	}
}

// removeIdle removes methods without a call for idleAfter.
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

// remove removes a method, and its target if that has no other method. e.mu must be held.
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

// The memory of an entry without its windows, in bytes: rounded up, as allocations are, and with its share of the maps.
const (
	word        = int64(unsafe.Sizeof(uintptr(0)))
	mapShare    = 16 * word
	mapBytes    = 32 * word // of a target's methods
	estimates   = 384       // of the trigger
	timerBytes  = 16 * word // of the alarm
	methodBytes = (int64(unsafe.Sizeof(method{}))+127)/128*128 + int64(unsafe.Sizeof(list.Element{})) + mapShare + estimates + timerBytes + settingsBytes
	targetBytes = int64(unsafe.Sizeof(target{})) + int64(unsafe.Sizeof(budget.Bucket{})) + mapShare + mapBytes
)

func (m *method) bytes() int64 { return methodBytes + allocated(m.name) }

func (t *target) bytes() int64 { return targetBytes + allocated(t.name) }

// allocated returns about how many bytes a string takes.
func allocated(s string) int64 { return int64(len(s)+len(s)/8) + 16 }
