//lint:file-ignore SA1019 What is deprecated passes through too, as children and parents may still use it.

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

// child is a wrapped policy, and the ClientConn that it has.
type child struct {
	balancer.ClientConn // the parent's, for what passes through

	family   *family
	number   int // in the family, and of its connections
	balancer balancer.Balancer

	// Guarded by policy.mu.
	state    balancer.State // its last
	subConns map[*subConn]struct{}

	// telling is held in every call to the child, as gRPC makes one at a time and some of ours come on goroutines of their
	// own. It is taken before any lock of the child's and before policy.mu.
	telling sync.Mutex
	closed  bool
}

func newChild(f *family, number int) *child {
	state := balancer.State{ConnectivityState: connectivity.Connecting, Picker: base.NewErrPicker(balancer.ErrNoSubConnAvailable)}
	return &child{ClientConn: f.policy.parent, family: f, number: number, state: state, subConns: map[*subConn]struct{}{}}
}

// build builds the child. It may say that it is idle before it is built, as package lazy of gRPC does.
func (c *child) build() {
	c.tell(func() { c.balancer = c.family.builder.Build(c, c.family.policy.opts) })
}

// tell makes a call to the child, unless it is closed.
func (c *child) tell(call func()) {
	c.telling.Lock()
	defer c.telling.Unlock()
	if !c.closed {
		call()
	}
}

// alive reports whether the child is in use or about to be, with policy.mu held.
func (c *child) alive() bool {
	p := c.family.policy
	return (c.family == p.current || c.family == p.pending) && slices.Contains(c.family.copies, c)
}

// UpdateState passes the family's state on.
func (c *child) UpdateState(state balancer.State) {
	p := c.family.policy
	p.mu.Lock()
	defer p.mu.Unlock()
	c.state = state
	if c.alive() {
		c.family.changed()
	}
}

// ResolveNow passes on the request of the latest child: addresses are of interest to no other.
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

// UpdateAddresses is the deprecated form of the connection's own.
func (c *child) UpdateAddresses(sc balancer.SubConn, addresses []resolver.Address) {
	sc.UpdateAddresses(addresses)
}

// close closes the child and then the connections that it has left.
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
