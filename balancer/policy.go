package balancer

import (
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/place"
)

// policy is the balancer of one connection, or of one place in its tree of policies. Everything passes through to
// the child, of which there are two while one takes over from the other.
type policy struct {
	parent balancer.ClientConn
	opts   balancer.BuildOptions
	place  *place.Policy

	// mu is never held in a call to a child, which may hold locks of its own while it calls back.
	mu      sync.Mutex
	current *child // nil before the first configuration, and once closed
	pending *child // takes over from current; nil mostly
	closed  bool

	closing sync.WaitGroup // children that close on goroutines of their own
}

var errClosed = errors.New("hedge: " + Name + ": closed")

// latest is the child that resolver updates are for.
func (p *policy) latest() *child {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending != nil {
		return p.pending
	}
	return p.current
}

func (p *policy) UpdateClientConnState(state balancer.ClientConnState) error {
	c, ok := state.BalancerConfig.(*config)
	if !ok {
		return balancer.ErrBadResolverState
	}
	latest := p.latest()
	if latest == nil || latest.name != c.builder.Name() {
		var err error
		if latest, err = p.switchTo(c.builder); err != nil {
			return err
		}
	}
	state.BalancerConfig = c.child
	return latest.balancer.UpdateClientConnState(state)
}

// switchTo builds a child that takes over from the one there is, if any.
func (p *policy) switchTo(b balancer.Builder) (*child, error) {
	c := newChild(p, b.Name())
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	overtaken := p.pending
	if p.current == nil {
		p.current = c
	} else {
		p.pending = c
	}
	p.mu.Unlock()
	if overtaken != nil {
		overtaken.close()
	}
	c.balancer = b.Build(c, p.opts)
	return c, nil
}

// takeOver makes the pending child the current one, with mu held.
func (p *policy) takeOver() {
	old := p.current
	p.current, p.pending = p.pending, nil
	p.show()
	p.parent.UpdateState(p.current.state)
	// Not here: the old child may be the caller, with locks held that its Close takes.
	p.closing.Go(old.close)
}

// show tells what is ready in the current child, with mu held.
func (p *policy) show() {
	if p.current != nil {
		p.place.Show(slices.Clip(p.current.ready))
	}
}

func (p *policy) ResolverError(err error) {
	if c := p.latest(); c != nil {
		c.balancer.ResolverError(err)
		return
	}
	p.parent.UpdateState(balancer.State{
		ConnectivityState: connectivity.TransientFailure,
		Picker:            base.NewErrPicker(err),
	})
}

// UpdateSubConnState is not called any more: every connection has a listener.
func (p *policy) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (p *policy) ExitIdle() {
	if c := p.latest(); c != nil {
		c.balancer.ExitIdle()
	}
}

func (p *policy) Close() {
	p.mu.Lock()
	children := []*child{p.current, p.pending}
	p.current, p.pending, p.closed = nil, nil, true
	p.mu.Unlock()
	p.place.Leave()
	for _, c := range children {
		if c != nil {
			c.close()
		}
	}
	p.closing.Wait()
}
