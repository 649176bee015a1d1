package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/place"
)

// policy is the balancer of one connection, or of one node in its tree of policies. It passes
// everything through to the copies of the child policy, one for each connection to an address.
type policy struct {
	parent balancer.ClientConn
	opts   balancer.BuildOptions
	place  *place.Backends

	// mu must not be held in a call to a child, which may hold locks of its own while it calls
	// back. Only the goroutine on which gRPC calls the policy adds copies.
	mu      sync.Mutex
	current []*child // empty before the first configuration, and once closed
	closed  bool
}

func (p *policy) copies() []*child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *policy) UpdateClientConnState(state balancer.ClientConnState) (first error) {
	c, ok := state.BalancerConfig.(*policyConfig)
	if !ok {
		return balancer.ErrBadResolverState
	}
	if err := p.configure(c); err != nil {
		return err
	}
	p.place.SetSilence(c.Silence)
	state.BalancerConfig = c.child
	for _, copied := range p.copies() {
		copied.tell(func() { first = cmp.Or(first, copied.balancer.UpdateClientConnState(state)) })
	}
	return first
}

// configure builds copies, and closes extra ones, so that there are as many copies of the child as c has
// connections. Copies of another child are closed.
func (p *policy) configure(c *policyConfig) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("hedge: %s: closed", Name)
	}
	kept := min(len(p.current), c.Connections)
	if kept > 0 && p.current[0].builder.Name() != c.builder.Name() {
		kept = 0
	}
	extra := p.current[kept:]
	p.current = slices.Clone(p.current[:kept])
	for n := kept; n < c.Connections; n++ {
		p.current = append(p.current, newChild(p, c.builder, n))
	}
	added := p.current[kept:]
	if len(extra) > 0 {
		p.publish()
	}
	p.mu.Unlock()
	closeAll(extra)
	for _, copied := range added {
		copied.build()
	}
	return nil
}

// publish reports the state of the current copies to the parent. mu must be held.
func (p *policy) publish() {
	p.show()
	state, picks := connectivityOf(p.current), &picker{place: p.place}
	for _, c := range p.current {
		picks.all = append(picks.all, c.state.Picker)
		if c.state.ConnectivityState == state {
			picks.copies = append(picks.copies, c.state.Picker)
		}
	}
	if len(picks.copies) == 0 { // no state that this version knows
		picks.copies = []balancer.Picker{waits}
	}
	p.parent.UpdateState(balancer.State{ConnectivityState: state, Picker: picks})
}

// show updates the list of ready connections from the current copies. mu must be held.
func (p *policy) show() {
	var ready []*place.Backend
	for _, c := range p.current {
		for s := range c.subConns {
			if s.ready() {
				ready = append(ready, s.backend)
			}
		}
	}
	p.place.Show(ready)
}

// connectivityOf returns the first state of a copy in the order of gRPC's own policies over several
// connections.
func connectivityOf(copies []*child) connectivity.State {
	for _, state := range []connectivity.State{connectivity.Ready, connectivity.Connecting, connectivity.Idle} {
		if slices.ContainsFunc(copies, func(c *child) bool { return c.state.ConnectivityState == state }) {
			return state
		}
	}
	return connectivity.TransientFailure
}

func (p *policy) ResolverError(err error) {
	copies := p.copies()
	for _, c := range copies {
		c.tell(func() { c.balancer.ResolverError(err) })
	}
	if len(copies) == 0 {
		p.parent.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure,
			Picker: base.NewErrPicker(err)})
	}
}

// UpdateSubConnState is a no-op, because every connection has a listener.
func (p *policy) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (p *policy) ExitIdle() {
	for _, c := range p.copies() {
		c.tell(c.balancer.ExitIdle)
	}
}

func (p *policy) Close() {
	p.mu.Lock()
	current := p.current
	p.current, p.closed = nil, true
	p.mu.Unlock()
	p.place.Leave()
	closeAll(current)
}
