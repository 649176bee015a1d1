package balancer

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/grpchedge/hedge/internal/place"
)

// picker picks as the child's does. For a hedge it picks again and elsewhere where the child would meet a backend that its
// call has used, and for a primary where the child would meet one that is silent. It is immutable.
type picker struct {
	copies []balancer.Picker // of the child, those that can pick; the first is for primaries
	idle   []balancer.Picker // those that would connect if they were asked
	place  *place.Roster
	turn   *atomic.Uint32 // for primaries that use the copies in turn; nil: they use the first
}

// maxPicks is how often each copy of the child is asked for one backend. A round robin gives another one the second or
// third time; one that still gives none has its weight, or its hash, on those that are used.
const maxPicks = 16

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	r, hedge := place.Of(info.Ctx, p.place.Target)
	if hedge != nil {
		return p.pickForHedge(info, r, hedge)
	}
	child := p.copies[0]
	if p.turn != nil {
		child = p.copies[p.turn.Add(1)%uint32(len(p.copies))]
	}
	res, b, err := pick(child, info)
	if err != nil || b == nil {
		return res, err
	}
	if b.Suspect() {
		res, b = p.pastSilence(info, r, res, b)
	}
	if r != nil {
		r.Went(b)
	}
	return res, nil
}

// pastSilence returns another pick for a primary whose backend is silent, unless the primary is a probe.
func (p *picker) pastSilence(info balancer.PickInfo, r *place.Record, res balancer.PickResult, b *place.Backend) (balancer.PickResult, *place.Backend) {
	if b.Silent() && p.place.Avoids() && !b.Probe(time.Now(), r) {
		silent := b
		if res, b = p.better(info, rankForPrimary, res, b); b != silent {
			p.place.Moved()
		}
	}
	return watched(res, b), b
}

// watched makes the pick of a backend that is suspected of silence say whether it was answered.
func watched(res balancer.PickResult, b *place.Backend) balancer.PickResult {
	if !b.Suspect() {
		return res
	}
	done := res.Done
	res.Done = func(info balancer.DoneInfo) {
		if info.BytesReceived {
			b.Answered()
		}
		if done != nil {
			done(info)
		}
	}
	return res
}

func (p *picker) pickForHedge(info balancer.PickInfo, r *place.Record, hedge *place.Hedge) (balancer.PickResult, error) {
	info.Ctx = place.Hide(info.Ctx) // where the hedge goes is not for such a policy below
	r.Lock()
	defer r.Unlock()
	res, b, err := pick(p.copies[0], info)
	if err != nil || b == nil {
		return res, err
	}
	res, b = p.better(info, func(b *place.Backend) int { return rankForHedge(r, b) }, res, b)
	r.HedgeWent(hedge, b)
	return watched(res, b), nil
}

// worst is the rank of a backend to which an attempt goes only if there is no other.
const worst = 4

// rankForHedge says how good a backend is for a hedge, 0 being best: one that is not silent, and of these one at another
// address, or else over another connection. The lock of the record must be held.
func rankForHedge(r *place.Record, b *place.Backend) (rank int) {
	if r.Used(b) {
		return worst
	}
	if b.Silent() {
		rank += 2
	}
	if r.Met(b) {
		rank++
	}
	return rank
}

func rankForPrimary(b *place.Backend) int {
	if b.Silent() {
		return worst
	}
	return 0
}

// better returns a pick of the best rank that a ready backend has: the given one, or one of the child's, or, if the child
// does not come to it, a connection of its own choice. Picks that are not used are released.
func (p *picker) better(info balancer.PickInfo, rank func(*place.Backend) int, res balancer.PickResult, b *place.Backend) (balancer.PickResult, *place.Backend) {
	if rank(b) == 0 {
		return res, b
	}
	best, other := p.best(rank)
	if other == nil || rank(b) <= best {
		for _, idle := range p.idle { // for want of a better one, the next hedge may find it connected
			if res, err := idle.Pick(info); err == nil {
				release(res)
			}
		}
		return res, b
	}
	var err error
	for n := range (maxPicks - 1) * len(p.copies) {
		release(res)
		if res, b, err = pick(p.copies[n%len(p.copies)], info); err != nil {
			break
		}
		if b != nil && rank(b) <= best {
			return res, b
		}
	}
	release(res)
	return balancer.PickResult{SubConn: other.SubConn}, other
}

// best returns a ready backend of the best rank there is, nil if all are of the worst.
func (p *picker) best(rank func(*place.Backend) int) (int, *place.Backend) {
	best, other := worst, (*place.Backend)(nil)
	ready := p.place.Ready()
	start := rand.IntN(max(1, len(ready))) // so that not all of a hot key's hedges go to one backend
	for i := range ready {
		b := ready[(start+i)%len(ready)]
		if n := rank(b); n < best {
			best, other = n, b
		}
		if best == 0 {
			break
		}
	}
	return best, other
}

// pick asks a child. The backend is nil with an error, and for a connection that the child has from elsewhere.
func pick(child balancer.Picker, info balancer.PickInfo) (balancer.PickResult, *place.Backend, error) {
	res, err := child.Pick(info)
	if err != nil {
		return balancer.PickResult{}, nil, err
	}
	s, ok := res.SubConn.(*subConn)
	if !ok {
		return res, nil, nil
	}
	b := s.backend.Load()
	res.SubConn = b.SubConn
	return res, b, nil
}

// release tells the child that a pick of its is not used, as gRPC does when a picked connection is not ready.
func release(res balancer.PickResult) {
	if res.Done != nil {
		res.Done(balancer.DoneInfo{})
	}
}
