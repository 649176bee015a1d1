package registry

// Memory is what a registry counts as its own, in bytes.
func Memory(r *Registry) int64 { return r.memory.Bytes() }

// MakeTriggerPanic lets the choice of the trigger panic, until the function returned is called.
func MakeTriggerPanic(r *Registry) (undo func()) {
	set := func(hedges int) {
		for _, m := range r.entries.all() {
			m.Learner.Config().MaxHedges = hedges
		}
	}
	set(1000) // more than package knee has room for
	return func() { set(r.config.Load().MaxHedges) }
}
