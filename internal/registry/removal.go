package registry

import (
	"cmp"
	"slices"
	"time"
)

// A method without a call for idleAfter is removed, with all that was learned of it. This needs no
// goroutine: once in sweepEvery, a call searches for idle methods.
const (
	idleAfter  = 15 * time.Minute
	sweepEvery = time.Minute
)

// entry is the use of a method, for its removal. Registry.mu guards it. Calls do not
// change it: their counts show whether there was a call since the last look.
type entry struct {
	calls int64         // at the last look
	used  time.Duration // the last look that found a call, after the registry's epoch
}

// look notes which methods were called since the last look. r.mu must be held.
func (r *Registry) look(at time.Duration) {
	for _, m := range r.methods {
		if calls := m.Counters.activity(); calls != m.entry.calls {
			m.entry = entry{calls, at}
		}
	}
}

// leastUsed returns the method to remove for a new one: first a method with a single call, so that
// many such methods displace no others, and then the method that was not called for the longest
// time. It ranks the methods once for several removals, and passes over a method that was called
// since. r.mu must be held.
func (r *Registry) leastUsed(at time.Duration) *Method {
	for range 2 {
		for len(r.victims) > 0 {
			m := r.victims[0]
			r.victims = r.victims[1:]
			if !m.Counters.left.Load() && m.Counters.activity() == m.entry.calls {
				return m
			}
		}
		r.look(at)
		r.victims = slices.Clone(r.methods)
		slices.SortStableFunc(r.victims, func(a, b *Method) int {
			return cmp.Or(cmp.Compare(min(a.entry.calls, 2), min(b.entry.calls, 2)), cmp.Compare(a.entry.used, b.entry.used))
		})
		r.victims = slices.Clone(r.victims[:1+len(r.victims)/16])
	}
	return r.victims[0] // all others were called since
}

func (r *Registry) removeIdle(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look(at)
	r.victims = nil
	if r.remove(func(m *Method) bool { return at-m.entry.used > idleAfter }) {
		r.forgetNames()
	}
}

// remove removes methods, and targets without a method, and reports whether it removed a
// target. r.mu must be held.
func (r *Registry) remove(unused func(*Method) bool) (target bool) {
	r.methods = slices.DeleteFunc(r.methods, func(m *Method) bool {
		if !unused(m) {
			return false
		}
		r.forgot = true
		m.Target.methods.Delete(m.Name)
		m.Counters.left.Store(true)
		m.Counters.Flush()
		if m.Target.count--; m.Target.count == 0 {
			r.targets.Delete(m.Target.Name)
			target = true
		}
		return true
	})
	return target
}
