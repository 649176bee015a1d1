package balancer

import (
	"cmp"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
)

// family is a child policy, in as many copies as each address has connections. Each copy makes its own connections and does
// not know of the others, so any child can be copied. There is one copy unless the configuration says more.
type family struct {
	policy  *policy
	builder balancer.Builder

	// Guarded by policy.mu. The slice is changed only by the goroutine on which gRPC calls the policy.
	copies []*child
	spread bool

	turn atomic.Uint32 // whose turn it is, if primaries use all copies
}

// changed is called when the state of a copy has changed, with policy.mu held. While another family waits to take over, it
// does so when this one is no longer ready, or when the other one no longer connects.
func (f *family) changed() {
	p := f.policy
	state := f.state()
	if state.ConnectivityState == connectivity.Ready {
		f.wake()
	}
	switch {
	case f == p.current && (p.pending == nil || state.ConnectivityState == connectivity.Ready):
		p.parent.UpdateState(state)
	case f == p.current:
		p.takeOver()
	case f == p.pending && (state.ConnectivityState != connectivity.Connecting || p.current.connectivity() != connectivity.Ready):
		p.takeOver()
	}
}

// wake makes idle copies connect where another copy is connected: then the channel is in use, and only a connection of it was
// lost. If all copies are idle, the first call connects the first copy, and that wakes the others.
func (f *family) wake() {
	for _, c := range f.copies {
		if c.state.ConnectivityState == connectivity.Idle && !c.woken {
			c.woken = true
			c.exitIdle()
		}
	}
}

// precedence of states, as gRPC's own policies over several connections have it.
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

// state returns the state of the family, with a picker over the copies in that state.
func (f *family) state() balancer.State {
	s := balancer.State{ConnectivityState: f.connectivity()}
	p := &picker{place: f.policy.place, ejects: f.builder.Name() == "outlier_detection_experimental"}
	if f.spread {
		p.turn = &f.turn
	}
	for _, c := range f.copies {
		if c.state.ConnectivityState == s.ConnectivityState {
			p.copies = append(p.copies, c.state.Picker)
		}
	}
	if len(p.copies) == 0 { // every state is unknown to this version
		p.copies = []balancer.Picker{base.NewErrPicker(balancer.ErrNoSubConnAvailable)}
	}
	s.Picker = p
	return s
}

// resize builds copies until there are n, or closes the last ones. The first one stays.
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
		p.parent.UpdateState(f.state())
	}
	p.mu.Unlock()
	for _, c := range extra {
		c.close()
	}
}

// update gives every copy what the resolver found, and returns the first error.
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
