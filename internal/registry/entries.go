package registry

import (
	"container/list"
	"time"
)

// A method without a call for idleAfter is removed, with all that was learned of it. This needs no
// goroutine: once in sweepEvery, a call searches for idle methods.
const (
	idleAfter  = 15 * time.Minute
	sweepEvery = time.Minute
)

// entries are the methods of all targets, in the order in which they are considered for removal.
// Registry.mu guards all of it. Calls do not change it: the counters show whether a method was
// called since it was last considered.
//
// There are two lists, as in the second-chance algorithm. A new method is fresh. When it is
// considered, it is removed if it was called only once, and moves to the kept list otherwise. A
// kept method is removed if it was not called since it was last considered, and otherwise moves to
// the end of its list. The longer list is considered first, so that many methods that are called
// once do not displace kept ones, and a new method has time for a second call.
type entries struct {
	fresh, kept list.List // of *Method; the first is considered next
	forgot      bool      // a method was removed
}

type entry struct {
	list    *list.List // fresh or kept
	element *list.Element
	seen    int64 // activity when it was last considered, the first call included

	swept     int64         // activity when idle methods were last looked for
	idleSince time.Duration // after the registry's epoch, to the minute
}

func (e *entries) len() int { return e.fresh.Len() + e.kept.Len() }

func (e *entries) all() []*Method {
	var all []*Method
	for _, l := range []*list.List{&e.fresh, &e.kept} {
		for at := l.Front(); at != nil; at = at.Next() {
			all = append(all, at.Value.(*Method))
		}
	}
	return all
}

// leastUsed returns the method to remove next, of one at least.
func (e *entries) leastUsed() *Method {
	// Two rounds are enough: in the second, a method counts as used only if it was called since the
	// first.
	for range 2 * e.len() {
		m := e.next()
		activity := m.Counters.activity()
		if activity <= m.entry.seen {
			return m
		}
		m.entry.list.Remove(m.entry.element)
		m.entry.list, m.entry.element, m.entry.seen = &e.kept, e.kept.PushBack(m), activity
	}
	return e.next()
}

// next returns the method to consider next.
func (e *entries) next() *Method {
	l := &e.kept
	if e.fresh.Len() > e.kept.Len() {
		l = &e.fresh
	}
	return l.Front().Value.(*Method)
}

func (r *Registry) removeIdle(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := false // a target has lost its last method
	for _, m := range r.entries.all() {
		if activity := m.Counters.activity(); activity != m.entry.swept {
			m.entry.swept, m.entry.idleSince = activity, at
		} else if at-m.entry.idleSince > idleAfter {
			r.remove(m)
			left = left || m.Target.count == 0
		}
	}
	if left {
		r.forgetNames()
	}
}

// remove removes a method, and its target if that has no other method. r.mu must be held.
func (r *Registry) remove(m *Method) {
	r.entries.forgot = true
	m.entry.list.Remove(m.entry.element)
	m.Target.methods.Delete(m.Name)
	m.Counters.left.Store(true)
	m.Counters.Flush()
	t := m.Target
	if t.count--; t.count == 0 {
		r.targets.Delete(t.Name)
	}
}
