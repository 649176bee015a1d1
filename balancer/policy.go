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
	pending []*child // copies of the child that replaces current when it is ready; usually empty
	closed  bool

	closing sync.WaitGroup // closes of replaced copies
}

// latest returns the copies that get resolver updates.
func (p *policy) latest() []*child {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) > 0 {
		return p.pending
	}
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
	for _, copied := range p.latest() {
		copied.tell(func() { first = cmp.Or(first, copied.balancer.UpdateClientConnState(state)) })
	}
	return first
}

// configure builds copies, and closes extra ones, so that the latest are as many copies of the child
// as c has connections. Copies of another child than the current one are pending.
func (p *policy) configure(c *policyConfig) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("hedge: %s: closed", Name)
	}
	copies, extra, built := &p.current, []*child(nil), 0
	if len(p.pending) > 0 {
		copies = &p.pending
	}
	if built = len(*copies); built > 0 && (*copies)[0].builder.Name() != c.builder.Name() {
		copies, extra, p.pending, built = &p.pending, p.pending, nil, 0
	} else if n := c.Connections; built > n {
		*copies, extra, built = (*copies)[:n:n], (*copies)[n:], n
	}
	*copies = slices.Clip(*copies)
	for n := built; n < c.Connections; n++ {
		*copies = append(*copies, newChild(p, c.builder, n))
	}
	added := (*copies)[built:]
	if copies == &p.current && len(extra) > 0 {
		p.publish()
	}
	p.mu.Unlock()
	closeAll(extra)
	for _, copied := range added {
		copied.build()
	}
	return nil
}

// changed must be called when the state of a copy has changed. The pending copies replace the
// current ones when those are no longer ready, or when the pending ones are no longer connecting. mu
// must be held.
func (p *policy) changed(c *child) {
	if len(p.pending) > 0 && (connectivityOf(p.current) != connectivity.Ready ||
		connectivityOf(p.pending) != connectivity.Connecting) {
		old := p.current
		p.current, p.pending = p.pending, nil
		p.publish()
		// On a goroutine: the caller may be an old copy that holds locks which its Close acquires.
		p.closing.Go(func() { closeAll(old) })
	} else if slices.Contains(p.current, c) {
		p.publish()
	}
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
	copies := p.latest()
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
	for _, c := range p.latest() {
		c.tell(c.balancer.ExitIdle)
	}
}

func (p *policy) Close() {
	p.mu.Lock()
	current, pending := p.current, p.pending
	p.current, p.pending, p.closed = nil, nil, true
	p.mu.Unlock()
	p.place.Leave()
	closeAll(current)
	closeAll(pending)
	p.closing.Wait()
}
