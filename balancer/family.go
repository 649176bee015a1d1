package balancer

import (
	"cmp"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
)

// family is a child policy in as many copies as each address has connections. A copy makes its own
// connections and does not know of the other copies, so any child can be copied.
type family struct {
	policy  *policy
	builder balancer.Builder

	// Guarded by policy.mu. Only the goroutine on which gRPC calls the policy changes the slice.
	copies []*child
	spread bool

	turn atomic.Uint32 // counts primaries, with spread
}

// changed must be called when the state of a copy has changed. policy.mu must be held. A pending
// family replaces the current one when the current one is no longer ready, or when the pending one
// is no longer connecting.
func (f *family) changed() {
	p, state := f.policy, f.connectivity()
	switch {
	case f == p.current && (p.pending == nil || state == connectivity.Ready):
		p.publish()
	case f == p.current:
		p.replace()
	case f == p.pending && (state != connectivity.Connecting || p.current.connectivity() != connectivity.Ready):
		p.replace()
	}
}

// precedence is the order of states in gRPC's own policies over several connections.
var precedence = []connectivity.State{connectivity.Ready, connectivity.Connecting, connectivity.Idle}

func (f *family) connectivity() connectivity.State {
	for _, state := range precedence {
		for _, c := range f.copies {
			if c.state.ConnectivityState == state {
				return state
			}
		}
	}
	return connectivity.TransientFailure
}

// picker returns a picker over the copies that are in the given state. policy.mu must be held.
func (f *family) picker(state connectivity.State) *picker {
	p := &picker{place: f.policy.place}
	if f.spread {
		p.turn = &f.turn
	}
	for _, c := range f.copies {
		p.all = append(p.all, c.state.Picker)
		if c.state.ConnectivityState == state {
			p.copies = append(p.copies, c.state.Picker)
		}
	}
	if len(p.copies) == 0 { // this version knows none of the states
		p.copies = []balancer.Picker{base.NewErrPicker(balancer.ErrNoSubConnAvailable)}
	}
	return p
}

// resize builds copies until there are n, or closes the last copies. It never closes the first one.
func (f *family) resize(n int, spread bool) {
	p := f.policy
	for len(f.copies) < n {
		c := newChild(f, len(f.copies))
		p.mu.Lock()
		f.copies = append(f.copies[:len(f.copies):len(f.copies)], c)
		p.mu.Unlock()
		c.build()
	}
	p.mu.Lock()
	extra := f.copies[n:]
	f.copies = f.copies[:n:n]
	different := f.spread != spread || len(extra) > 0
	f.spread = spread
	if different && f == p.current {
		p.show()
		p.publish()
	}
	p.mu.Unlock()
	for _, c := range extra {
		c.close()
	}
}

// update passes the state to every copy, and returns the first error.
func (f *family) update(state balancer.ClientConnState) (first error) {
	for _, c := range f.copies {
		c.tell(func() { first = cmp.Or(first, c.balancer.UpdateClientConnState(state)) })
	}
	return first
}

func (f *family) close() {
	for _, c := range f.copies {
		c.close()
	}
}
