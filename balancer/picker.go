package balancer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/rpc"
)

// picker returns picks of the child only. It asks the child again for a hedge whose call has used
// the picked connection, and for a primary whose connection is silent.
type picker struct {
	place  *place.Roster
	all    []balancer.Picker // of each copy of the child, by its number
	copies []balancer.Picker // of the copies in the best state; the first is for primaries
	turn   *atomic.Uint32    // whose turn it is, with "spread"; nil: primaries use the first copy

	incomplete bool     // an address is ready in one copy and not in another
	woken      sync.Map // the addresses for which wake has run
}

// maxPicks bounds how often the copies of the child are asked for one attempt, all copies together.
// A round robin returns another connection at the second or third time. A child that has returned
// none after 16 has its weight, or its hash, on the connections that are used.
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
	if p.incomplete {
		p.wake(info, b)
	}
	if b.Silent() && !place.Hidden(info.Ctx) && !b.Probe(time.Now(), r) && p.place.Moves() {
		silent := b
		if res, b = p.search(info, nil, res, b); b != silent {
			p.place.Moved()
		}
	}
	if r != nil {
		r.Went(b)
		r.Remember(info)
	}
	return watched(info.Ctx, r, res, b), nil
}

// wake asks the other copies for the pick of the first primary at the address of b, and gives their
// picks back. Copies that are idle then connect, and so do children that connect for a pick.
func (p *picker) wake(info balancer.PickInfo, b *place.Backend) {
	address, number := b.Connection()
	if _, done := p.woken.LoadOrStore(address, nil); done {
		return
	}
	for n, c := range p.all {
		if n != number {
			if res, err := c.Pick(info); err == nil {
				release(res)
			}
		}
	}
}

// watched returns res with a Done that reports an answer to a suspect backend, and no error to the child
// for an attempt that lost its race: children such as outlier_detection count errors. A canceled attempt
// and a missed deadline are no answer, because only headers may have been received.
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
	r.Lock()
	defer r.Unlock()
	res, b := r.Reserved(p.place)
	if b == nil {
		var err error
		if res, b, err = p.forHedge(info, r); err != nil || b == nil {
			return res, err
		}
	}
	r.HedgeWent(hedge, b)
	return watched(info.Ctx, r, res, b), nil
}

// forHedge picks for a hedge of r's call. The lock of r must be held.
func (p *picker) forHedge(info balancer.PickInfo, r *place.Record) (res balancer.PickResult, b *place.Backend, err error) {
	info.Ctx = place.Hide(info.Ctx) // a policy of this kind further down must not choose too
	for _, c := range p.copies {
		if res, b, err = pick(c, info); err == nil {
			break
		}
	}
	if err != nil || b == nil {
		return res, b, err
	}
	res, b = p.search(info, r, res, b)
	return res, b, nil
}

// search asks the child again unless the given pick has the best rank of the ready connections. It
// returns the best of the child's picks, the given one if no other is better, and releases the
// others. r is the hedge's record, and its lock must be held; it is nil for a primary.
func (p *picker) search(info balancer.PickInfo, r *place.Record, res balancer.PickResult, b *place.Backend) (balancer.PickResult, *place.Backend) {
	now, first := time.Now(), b
	have := r.Rank(b, now)
	best := p.place.BestRank(r, have, now)
	if have == best || !first.Varies(r) {
		return res, b
	}
	varied := false
	for n := 1; n < maxPicks && have > best; n++ {
		next, at, err := pick(p.copies[n%len(p.copies)], info)
		if err != nil {
			continue
		}
		if at != nil {
			varied = varied || at != first
			if rank := r.Rank(at, now); rank < have {
				next, res, b, have = res, next, at, rank
			}
		}
		release(next)
	}
	first.Searched(r, varied)
	return res, b
}

// pick asks a child. The backend is nil with an error, and for a connection that this policy did not
// make.
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

// release gives a pick back to the child, as gRPC does when a picked connection is not ready.
func release(res balancer.PickResult) {
	if res.Done != nil {
		res.Done(balancer.DoneInfo{})
	}
}
