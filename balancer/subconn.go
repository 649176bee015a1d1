//lint:file-ignore SA1019 What is deprecated passes through too, as children and parents may still use it.

package balancer

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/place"
)

// subConn is a connection as a child has it. It knows its backend, so that a pick needs no look-up.
type subConn struct {
	balancer.SubConn // the parent's

	child   *child
	backend atomic.Pointer[place.Backend]

	// Guarded by policy.mu.
	connected bool
	unhealthy bool           // the child asked for its health and has not been told that it is well
	listed    *place.Backend // as it is in the list of ready ones; nil if it is not
}

func (s *subConn) changed(state balancer.SubConnState, listener func(balancer.SubConnState)) {
	s.deliver(state, listener, func() {
		// Health is asked for anew each time that a connection becomes ready.
		s.connected, s.unhealthy = state.ConnectivityState == connectivity.Ready, false
		if state.ConnectivityState == connectivity.Shutdown {
			delete(s.child.subConns, s)
		}
	})
}

// deliver makes the change that a state brings and then tells the child of the state, unless the child is closed. In this order,
// the list of ready connections is no older than the child's picker.
func (s *subConn) deliver(state balancer.SubConnState, listener func(balancer.SubConnState), change func()) {
	s.child.tell(func() {
		s.update(change)
		listener(state)
	})
}

// RegisterHealthListener passes the child's wish on and listens in.
func (s *subConn) RegisterHealthListener(listener func(balancer.SubConnState)) {
	s.update(func() { s.unhealthy = listener != nil })
	if listener == nil {
		s.SubConn.RegisterHealthListener(nil)
		return
	}
	s.SubConn.RegisterHealthListener(func(state balancer.SubConnState) {
		s.deliver(state, listener, func() { s.unhealthy = state.ConnectivityState != connectivity.Ready })
	})
}

// Shutdown takes the connection off the list at once: its last state comes later.
func (s *subConn) Shutdown() {
	s.update(func() { s.connected = false })
	s.SubConn.Shutdown()
}

func (s *subConn) UpdateAddresses(addresses []resolver.Address) {
	s.update(func() { s.backend.Store(s.child.family.policy.place.NewBackend(s.SubConn, addresses, s.child.number)) })
	s.SubConn.UpdateAddresses(addresses)
}

// update changes what is known of the connection, and the list of ready ones with it.
func (s *subConn) update(change func()) {
	p := s.child.family.policy
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	var list *place.Backend
	if s.connected && !s.unhealthy {
		list = s.backend.Load()
	}
	if list == s.listed {
		return
	}
	if list != nil {
		list.Answered() // a new connection has just been made there, or its health was told
	}
	if s.listed = list; s.child.family == p.current {
		p.show()
	}
}
