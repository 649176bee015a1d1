//lint:file-ignore SA1019 Children and parents may use the deprecated methods.

package balancer

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/place"
)

// child is a copy of the wrapped policy, and its ClientConn.
type child struct {
	balancer.ClientConn // the parent's, for what passes through

	policy   *policy
	builder  balancer.Builder
	number   int // of the copy, and of its connections
	balancer balancer.Balancer

	// Guarded by policy.mu.
	state    balancer.State // the last one
	subConns map[*subConn]struct{}

	// telling serializes calls to the child, as gRPC does. It is acquired before any lock of the
	// child and before policy.mu.
	telling sync.Mutex
	closed  bool
}

func newChild(p *policy, builder balancer.Builder, number int) *child {
	return &child{ClientConn: p.parent, policy: p, builder: builder, number: number, subConns: map[*subConn]struct{}{},
		state: balancer.State{ConnectivityState: connectivity.Connecting, Picker: waits}}
}

// waits makes calls wait for another picker.
var waits = base.NewErrPicker(balancer.ErrNoSubConnAvailable)

// build builds the child, which may call UpdateState before build returns.
func (c *child) build() { c.tell(func() { c.balancer = c.builder.Build(c, c.policy.opts) }) }

// tell runs call, which calls the child, unless the child is closed.
func (c *child) tell(call func()) {
	c.telling.Lock()
	defer c.telling.Unlock()
	if !c.closed {
		call()
	}
}

// alive reports whether the child is in use or may take effect later. policy.mu must be held.
func (c *child) alive() bool {
	return slices.Contains(c.policy.current, c) || slices.Contains(c.policy.pending, c)
}

func (c *child) UpdateState(state balancer.State) {
	if state.Picker == nil { // gRPC makes calls wait then
		state.Picker = waits
	}
	c.policy.mu.Lock()
	defer c.policy.mu.Unlock()
	if c.state = state; c.alive() {
		c.policy.changed(c)
	}
}

// ResolveNow passes the request of the latest child to the parent.
func (c *child) ResolveNow(opts resolver.ResolveNowOptions) {
	if slices.Contains(c.policy.latest(), c) {
		c.policy.parent.ResolveNow(opts)
	}
}

func (c *child) NewSubConn(addresses []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	p, s := c.policy, &subConn{child: c}
	listener := opts.StateListener
	if listener == nil {
		listener = func(state balancer.SubConnState) { c.balancer.UpdateSubConnState(s, state) }
	}
	opts.StateListener = func(state balancer.SubConnState) {
		s.deliver(state, listener, func() {
			// The child registers a health listener each time that the connection becomes ready.
			s.connected, s.unhealthy = state.ConnectivityState == connectivity.Ready, false
			if state.ConnectivityState == connectivity.Shutdown {
				delete(c.subConns, s)
			}
		})
	}
	sc, err := p.parent.NewSubConn(addresses, opts)
	if err != nil {
		return nil, err
	}
	s.SubConn, s.backend = sc, p.place.NewBackend(sc, addresses, c.number)

	p.mu.Lock()
	alive := c.alive()
	if alive {
		c.subConns[s] = struct{}{}
	}
	p.mu.Unlock()
	if !alive {
		sc.Shutdown()
		return nil, fmt.Errorf("hedge: %s: the child policy %s is closed", Name, c.builder.Name())
	}
	return s, nil
}

func (c *child) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

func (c *child) UpdateAddresses(sc balancer.SubConn, addresses []resolver.Address) {
	sc.UpdateAddresses(addresses)
}

func closeAll(children []*child) {
	for _, c := range children {
		c.tell(func() {
			c.closed = true
			c.balancer.Close()
		})
		c.policy.mu.Lock()
		left := c.subConns
		c.subConns = nil
		c.policy.mu.Unlock()
		for s := range left {
			s.SubConn.Shutdown()
		}
	}
}

// subConn is a child's connection. It has its backend, so that a pick needs no lookup.
type subConn struct {
	balancer.SubConn // the parent's

	child   *child
	backend *place.Backend

	// Guarded by policy.mu.
	connected bool
	unhealthy bool // the child listens for the health, and the last report is not READY
}

// ready reports whether the connection is in the list of ready connections. policy.mu must be held.
func (s *subConn) ready() bool { return s.connected && !s.unhealthy }

// deliver runs change and then passes state to the child, unless the child is closed. In this
// order, the list of ready connections is no older than the child's picker.
func (s *subConn) deliver(state balancer.SubConnState, listener func(balancer.SubConnState), change func()) {
	s.child.tell(func() {
		s.update(change)
		listener(state)
	})
}

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

func (s *subConn) update(change func()) {
	p := s.child.policy
	p.mu.Lock()
	defer p.mu.Unlock()
	before := s.ready()
	if change(); s.ready() == before {
		return
	}
	if s.ready() {
		s.backend.Answered() // it has just connected, or reported its health
	}
	p.show()
}
