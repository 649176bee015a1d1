package balancer

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/rpc"
)

// picker picks as the child's does. For a hedge it picks again and elsewhere where the child would meet a backend that its
// call has used, and for a primary where the child would meet one that is silent. It is immutable.
type picker struct {
	copies []balancer.Picker // of the child, those that can pick; the first is for primaries
	place  *place.Roster
	turn   *atomic.Uint32 // for primaries that use the copies in turn; nil: they use the first
	ejects bool           // the child knows of connections that are ready and must not be used
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
	silent := b
	if b.Silent() && !place.Hidden(info.Ctx) && !b.Probe(time.Now(), r) && p.place.Moves() {
		if res, b = p.better(info, nil, res, b); b != silent {
			p.place.Moved()
		}
	}
	if r != nil {
		r.Went(b)
	}
	return watched(info.Ctx, r, res, b), nil
}

// watched makes the end of an attempt known to a backend that is suspected of silence, and to the child. An attempt that was given up
// has no answer: headers may have been all that came. A child such as outlier_detection counts errors, so it is told of none where the
// attempt has lost a race.
func watched(ctx context.Context, r *place.Record, res balancer.PickResult, b *place.Backend) balancer.PickResult {
	done, suspect := res.Done, b.Suspect()
	if !suspect && (done == nil || r == nil) {
		return res
	}
	res.Done = func(info balancer.DoneInfo) {
		code := status.Code(info.Err)
		if suspect && info.BytesReceived && code != codes.Canceled && code != codes.DeadlineExceeded {
			b.Answered()
		}
		if done == nil {
			return
		}
		if code == codes.Canceled && context.Cause(ctx) == rpc.ErrLost {
			info.Err = nil
		}
		done(info)
	}
	return res
}

func (p *picker) pickForHedge(info balancer.PickInfo, r *place.Record, hedge *place.Hedge) (balancer.PickResult, error) {
	ctx := info.Ctx
	info.Ctx = place.Hide(ctx) // where the hedge goes is not for such a policy below
	r.Lock()
	defer r.Unlock()
	res, b, err := pick(p.copies[0], info)
	if err != nil || b == nil {
		return res, err
	}
	res, b = p.better(info, r, res, b)
	r.HedgeWent(hedge, b)
	return watched(ctx, r, res, b), nil
}

// worst is the rank of a backend to which a hedge goes only if there is no other.
const worst = 4

// rank says how good a backend is, 0 being best. A backend that is not silent comes before a silent one. For a hedge, another
// address comes before another connection. r is the hedge's record, and its lock must be held; it is nil for a primary.
func rank(r *place.Record, b *place.Backend) (rank int) {
	if r != nil && r.Used(b) {
		return worst
	}
	if b.Silent() {
		rank += 2
	}
	if r != nil && r.Met(b) {
		rank++
	}
	return rank
}

// better returns a pick of the best rank that a ready backend has: the given one, or one of the child's, or, if the child
// does not come to it, a connection of its own choice, unless the child ejects some. Picks that are not used are released.
func (p *picker) better(info balancer.PickInfo, r *place.Record, res balancer.PickResult, b *place.Backend) (balancer.PickResult, *place.Backend) {
	if rank(r, b) == 0 {
		return res, b
	}
	best, other := p.best(r)
	if rank(r, b) <= best {
		return res, b
	}
	for n := range (maxPicks - 1) * len(p.copies) {
		next, at, err := pick(p.copies[n%len(p.copies)], info)
		if err != nil {
			break
		}
		release(res)
		if res, b = next, at; b != nil && rank(r, b) <= best {
			return res, b
		}
	}
	if p.ejects && b != nil {
		return res, b
	}
	release(res)
	return balancer.PickResult{SubConn: other.SubConn}, other
}

// best returns a ready backend of the best rank there is, nil if all are of the worst.
func (p *picker) best(r *place.Record) (int, *place.Backend) {
	best, other := worst, (*place.Backend)(nil)
	ready := p.place.Ready()
	start := rand.IntN(max(1, len(ready))) // so that not all of a hot key's hedges go to one backend
	for i := range ready {
		b := ready[(start+i)%len(ready)]
		if n := rank(r, b); n < best {
			best, other = n, b
		}
		if best == 0 {
			break
		}
	}
	return best, other
}

// pick asks a child. The backend is nil with an error, and for a connection that this policy has not made.
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

// release tells the child that its pick is not used, as gRPC does when a picked connection is not ready.
func release(res balancer.PickResult) {
	if res.Done != nil {
		res.Done(balancer.DoneInfo{})
	}
}
