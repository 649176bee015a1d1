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

// policy is the balancer of one connection, or of one node in its tree of policies. It passes
// everything through to the child, which is a family of copies. While one child replaces another,
// there are two.
type policy struct {
	parent balancer.ClientConn
	opts   balancer.BuildOptions
	place  *place.Roster

	// mu must not be held in a call to a child, which may hold locks of its own while it calls
	// back.
	mu      sync.Mutex
	current *family // nil before the first configuration, and once closed
	pending *family // replaces current when it is ready; usually nil
	closed  bool

	closing sync.WaitGroup // closes of families by replace
}

// latest returns the family that gets resolver updates; nil if there is none.
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

// switchTo builds a family, which becomes the current one, or the pending one if there is a current
// one.
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

// replace makes the pending family the current one. mu must be held.
func (p *policy) replace() {
	old := p.current
	p.current, p.pending = p.pending, nil
	p.show()
	p.publish()
	// On a goroutine: the caller may be an old copy that holds locks which its Close acquires.
	p.closing.Go(old.close)
}

// publish passes the state of the current family to the parent. mu must be held.
func (p *policy) publish() {
	state := p.current.connectivity()
	picker := p.current.picker(state)
	p.place.SetPicker(picker.forHedge)
	p.parent.UpdateState(balancer.State{ConnectivityState: state, Picker: picker})
}

// show updates the list of ready connections from the current family. mu must be held.
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

// UpdateSubConnState is a no-op, because every connection has a listener.
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
