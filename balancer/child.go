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
)

// child is a wrapped policy, and its ClientConn.
type child struct {
	balancer.ClientConn // the parent's, for what passes through

	family   *family
	number   int // of the copy in the family, and of the copy's connections
	balancer balancer.Balancer

	// Guarded by policy.mu.
	state    balancer.State // the last one
	subConns map[*subConn]struct{}

	// telling serializes calls to the child, as gRPC does. Some of our calls run on goroutines of
	// their own. telling is acquired before any lock of the child and before policy.mu.
	telling sync.Mutex
	closed  bool
}

func newChild(f *family, number int) *child {
	state := balancer.State{ConnectivityState: connectivity.Connecting,
		Picker: base.NewErrPicker(balancer.ErrNoSubConnAvailable)}
	return &child{ClientConn: f.policy.parent, family: f, number: number, state: state, subConns: map[*subConn]struct{}{}}
}

// build builds the child, which may call UpdateState before build returns, as gRPC's package lazy
// does.
func (c *child) build() {
	c.tell(func() { c.balancer = c.family.builder.Build(c, c.family.policy.opts) })
}

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
	p := c.family.policy
	return (c.family == p.current || c.family == p.pending) && slices.Contains(c.family.copies, c)
}

// UpdateState updates the state of the family.
func (c *child) UpdateState(state balancer.State) {
	p := c.family.policy
	p.mu.Lock()
	defer p.mu.Unlock()
	c.state = state
	if c.alive() {
		c.family.changed()
	}
}

// ResolveNow passes the request of the latest child to the parent. Other children get no new
// addresses.
func (c *child) ResolveNow(opts resolver.ResolveNowOptions) {
	if c.family == c.family.policy.latest() {
		c.family.policy.parent.ResolveNow(opts)
	}
}

func (c *child) NewSubConn(addresses []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	p := c.family.policy
	s := &subConn{child: c}
	listener := opts.StateListener
	if listener == nil {
		listener = func(state balancer.SubConnState) { c.balancer.UpdateSubConnState(s, state) }
	}
	opts.StateListener = func(state balancer.SubConnState) { s.changed(state, listener) }
	sc, err := p.parent.NewSubConn(addresses, opts)
	if err != nil {
		return nil, err
	}
	s.SubConn = sc
	s.backend.Store(p.place.NewBackend(sc, addresses, c.number))

	p.mu.Lock()
	alive := c.alive()
	if alive {
		c.subConns[s] = struct{}{}
	}
	p.mu.Unlock()
	if !alive {
		sc.Shutdown()
		return nil, fmt.Errorf("hedge: %s: the child policy %s is closed", Name, c.family.builder.Name())
	}
	return s, nil
}

// RemoveSubConn is the deprecated form of Shutdown.
func (c *child) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// UpdateAddresses is the deprecated form of SubConn.UpdateAddresses.
func (c *child) UpdateAddresses(sc balancer.SubConn, addresses []resolver.Address) {
	sc.UpdateAddresses(addresses)
}

// close closes the child and then its remaining connections.
func (c *child) close() {
	c.tell(func() {
		c.closed = true
		c.balancer.Close()
	})

	c.family.policy.mu.Lock()
	left := c.subConns
	c.subConns = nil
	c.family.policy.mu.Unlock()
	for s := range left {
		s.SubConn.Shutdown()
	}
}
