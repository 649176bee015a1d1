package balancer

import (
	"math/rand/v2"

	"google.golang.org/grpc/balancer"

	"github.com/grpchedge/hedge/internal/place"
)

// picker picks as the child's does, and for a hedge again and elsewhere where that one would meet a backend that its
// call has used. It is immutable.
type picker struct {
	child balancer.Picker
	place *place.Policy
}

// maxPicks is how often the child is asked for one hedge's backend. A round robin gives another one the second or
// third time; one that still gives none has its weight, or its hash, on those that are used.
const maxPicks = 16

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	r, hedge := place.Of(info.Ctx, p.place.Target())
	if hedge != nil {
		return p.pickForHedge(info, r, hedge)
	}
	res, err := p.child.Pick(info)
	if err != nil {
		return res, err
	}
	if s, ok := res.SubConn.(*subConn); ok { // not one that the child has from elsewhere
		b := s.backend.Load()
		if r != nil {
			r.Went(b)
		}
		res.SubConn = b.SubConn
	}
	return res, nil
}

func (p *picker) pickForHedge(info balancer.PickInfo, r *place.Record, hedge *place.Hedge) (balancer.PickResult, error) {
	info.Ctx = place.Hide(info.Ctx) // the child's policies leave it to this one where the hedge goes
	r.Lock()
	defer r.Unlock()
	res, b, err := p.pick(info)
	if err != nil || b == nil {
		return res, err
	}
	if r.Used(b) {
		if other := p.unused(r); other != nil {
			res, b = p.elsewhere(info, r, res, other)
		}
	}
	r.HedgeWent(hedge, b)
	return res, nil
}

// pick asks the child. The backend is nil with an error, and for a connection that the child has from elsewhere.
func (p *picker) pick(info balancer.PickInfo) (balancer.PickResult, *place.Backend, error) {
	res, err := p.child.Pick(info)
	if err != nil {
		return res, nil, err
	}
	s, ok := res.SubConn.(*subConn)
	if !ok {
		return res, nil, nil
	}
	b := s.backend.Load()
	res.SubConn = b.SubConn
	return res, b, nil
}

// elsewhere releases a pick that met a used backend, and asks the child for another; other, which is ready and not
// used, is what it falls back on.
func (p *picker) elsewhere(info balancer.PickInfo, r *place.Record, res balancer.PickResult, other *place.Backend) (balancer.PickResult, *place.Backend) {
	for range maxPicks - 1 {
		release(res)
		var b *place.Backend
		var err error
		res, b, err = p.pick(info)
		if err != nil {
			return balancer.PickResult{SubConn: other.SubConn}, other
		}
		if b != nil && !r.Used(b) {
			return res, b
		}
	}
	release(res)
	return balancer.PickResult{SubConn: other.SubConn}, other
}

// release tells the child that a pick of its is not used, as gRPC does when a picked connection is not ready.
func release(res balancer.PickResult) {
	if res.Done != nil {
		res.Done(balancer.DoneInfo{})
	}
}

// unused returns a ready backend that the call has not used, nil if there is none.
func (p *picker) unused(r *place.Record) *place.Backend {
	ready := p.place.Ready()
	if len(ready) == 0 {
		return nil
	}
	start := rand.IntN(len(ready)) // so that not all of a hot key's hedges go to one backend
	for i := range ready {
		if b := ready[(start+i)%len(ready)]; !r.Used(b) {
			return b
		}
	}
	return nil
}
