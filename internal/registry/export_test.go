package registry

import (
	"io"

	"github.com/grpchedge/hedge/internal/sketch"
)

// ReadSnapshots returns the latencies in snapshots, by "target method class".
func ReadSnapshots(all ...io.Reader) (map[string]sketch.Counts, error) {
	counts, err := readSnapshots(all)
	if err != nil {
		return nil, err
	}
	known := map[string]sketch.Counts{}
	for k, c := range counts {
		known[k.target+" "+k.method+" "+k.class] = c
	}
	return known, nil
}

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
