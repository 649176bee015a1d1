//lint:file-ignore SA1019 Children and parents may use the deprecated methods.

package balancer

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/place"
)

// subConn is a child's connection. It has its backend, so that a pick needs no lookup.
type subConn struct {
	balancer.SubConn // the parent's

	child   *child
	backend atomic.Pointer[place.Backend]

	// Guarded by policy.mu.
	connected bool
	unhealthy bool           // the child listens for the health, and the last report is not READY
	listed    *place.Backend // in the list of ready connections; nil if it is not listed
}

func (s *subConn) changed(state balancer.SubConnState, listener func(balancer.SubConnState)) {
	s.deliver(state, listener, func() {
		// The child registers a health listener each time that the connection becomes ready.
		s.connected, s.unhealthy = state.ConnectivityState == connectivity.Ready, false
		if state.ConnectivityState == connectivity.Shutdown {
			delete(s.child.subConns, s)
		}
	})
}

// deliver runs change and then passes state to the child, unless the child is closed. In this
// order, the list of ready connections is no older than the child's picker.
func (s *subConn) deliver(state balancer.SubConnState, listener func(balancer.SubConnState), change func()) {
	s.child.tell(func() {
		s.update(change)
		listener(state)
	})
}

// RegisterHealthListener registers a listener that also updates the list of ready connections.
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

// Shutdown removes the connection from the list at once: its last state comes later.
func (s *subConn) Shutdown() {
	s.update(func() { s.connected = false })
	s.SubConn.Shutdown()
}

func (s *subConn) UpdateAddresses(addresses []resolver.Address) {
	s.update(func() { s.backend.Store(s.child.family.policy.place.NewBackend(s.SubConn, addresses, s.child.number)) })
	s.SubConn.UpdateAddresses(addresses)
}

// update runs change, and updates the list of ready connections.
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
		list.Answered() // it has just connected, or reported its health
	}
	if s.listed = list; s.child.family == p.current {
		p.show()
	}
}
