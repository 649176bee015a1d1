package registry

import "time"

// Names is the number of connections in the registry's map of names.
func Names(r *Registry) (n int) {
	r.names.Range(func(_, _ any) bool { n++; return true })
	return n
}

// Targets is the number of targets in the registry.
func Targets(r *Registry) (n int) {
	r.targets.Range(func(_, _ any) bool { n++; return true })
	return n
}

// MakeTriggerPanic lets the choice of the trigger panic, until the function returned is called.
func MakeTriggerPanic(r *Registry) (undo func()) {
	set := func(hedges int) {
		for _, m := range r.methods() {
			m.Learner.Config().MaxHedges = hedges
		}
	}
	before := r.config.Load().MaxHedges
	set(1000) // more than a plan has room for
	return func() { set(before) }
}

// Sweep removes the methods without a call since the last one, if at is a quarter of an hour later.
// It returns the number of calls of all removed methods.
func Sweep(r *Registry, at time.Duration) int64 {
	r.removeIdle(at)
	return r.departed.read(false).Calls
}
