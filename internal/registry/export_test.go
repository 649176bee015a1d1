package registry

// Names is the number of connections in the registry's map of names.
func Names(r *Registry) (n int) {
	r.names.Range(func(_, _ any) bool { n++; return true })
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
