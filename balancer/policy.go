package balancer

import (
	"cmp"
	"fmt"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/place"
)

// policy is the balancer of one connection, or of one place in its tree of policies. Everything passes through to the child
// policy. While one child takes over from another, there are two. Each child is a family of copies.
type policy struct {
	parent balancer.ClientConn
	opts   balancer.BuildOptions
	place  *place.Roster

	// mu is never held in a call to a child, which may hold locks of its own while it calls back.
	mu      sync.Mutex
	current *family // nil before the first configuration, and once closed
	pending *family // takes over from current; nil mostly
	closed  bool

	closing sync.WaitGroup // families that takeOver closes
}

// latest is the family that resolver updates are for, nil if there is none.
func (p *policy) latest() *family {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.pending, p.current)
}

func (p *policy) UpdateClientConnState(state balancer.ClientConnState) error {
	c, ok := state.BalancerConfig.(*config)
	if !ok {
		return balancer.ErrBadResolverState
	}
	latest := p.latest()
	if latest == nil || latest.builder.Name() != c.builder.Name() {
		var err error
		if latest, err = p.switchTo(c); err != nil {
			return err
		}
	}
	p.place.SetSilence(c.Silence)
	latest.resize(c.Connections, c.Spread)
	state.BalancerConfig = c.child
	return latest.update(state)
}

// switchTo builds a family that takes over from the one there is, if any.
func (p *policy) switchTo(c *config) (*family, error) {
	f := &family{policy: p, builder: c.builder, spread: c.Spread}
	for n := range c.Connections {
		f.copies = append(f.copies, newChild(f, n))
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, fmt.Errorf("hedge: %s: closed", Name)
	}
	overtaken := p.pending
	if p.current == nil {
		p.current = f
	} else {
		p.pending = f
	}
	p.mu.Unlock()
	if overtaken != nil {
		overtaken.close()
	}
	for _, c := range f.copies {
		c.build()
	}
	return f, nil
}

// takeOver makes the pending family the current one, with mu held.
func (p *policy) takeOver() {
	old := p.current
	p.current, p.pending = p.pending, nil
	p.show()
	p.publish()
	// Not here: one of the old copies may be the caller, with locks held that its Close takes.
	p.closing.Go(old.close)
}

// publish passes the state of the current family to the parent. mu must be held.
func (p *policy) publish() {
	state := p.current.connectivity()
	picker := p.current.picker(state)
	p.place.SetPicker(picker.forHedge)
	p.parent.UpdateState(balancer.State{ConnectivityState: state, Picker: picker})
}

// show tells what is ready in the current family, with mu held.
func (p *policy) show() {
	var ready []*place.Backend
	for _, c := range p.current.copies {
		for s := range c.subConns {
			if s.listed != nil {
				ready = append(ready, s.listed)
			}
		}
	}
	p.place.Show(ready)
}

func (p *policy) ResolverError(err error) {
	if f := p.latest(); f != nil {
		for _, c := range f.copies {
			c.tell(func() { c.balancer.ResolverError(err) })
		}
		return
	}
	p.parent.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: base.NewErrPicker(err)})
}

// UpdateSubConnState is not called any more: every connection has a listener.
func (p *policy) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (p *policy) ExitIdle() {
	if f := p.latest(); f != nil {
		for _, c := range f.copies {
			c.tell(c.balancer.ExitIdle)
		}
	}
}

func (p *policy) Close() {
	p.mu.Lock()
	families := []*family{p.current, p.pending}
	p.current, p.pending, p.closed = nil, nil, true
	p.mu.Unlock()
	p.place.Leave()
	for _, f := range families {
		if f != nil {
			f.close()
		}
	}
	p.closing.Wait()
}
