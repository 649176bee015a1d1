package balancer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
)

// picker returns picks of the child only. It asks the child again for a hedge if its call has used the
// picked connection, and for a primary if the picked connection is silent.
type picker struct {
	place  *place.Backends
	all    []balancer.Picker // of each copy of the child, by its number
	copies []balancer.Picker // of the copies in the best state; the first is for primaries
	woken  sync.Map          // the backends for which wake has run
}

// maxPicks bounds how often the copies of the child are asked for one attempt, all copies together.
const maxPicks = 16

// A child that picks by the request returns the same connection each time. After fixedAfter searches
// in a row that found no other connection, one search in seldom is made.
const fixedAfter, seldom = 4, 32

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	attempt := race.Of(info.Ctx)
	r, hedge := attempt.Backends(p.place.Target)
	if hedge != nil {
		r.Lock()
		defer r.Unlock()
		got, err := p.forHedge(info, r)
		if err != nil || got.At == nil {
			return got.PickResult, err
		}
		r.HedgePicked(hedge, got.At)
		return watched(info.Ctx, r, got), nil
	}
	got, err := pick(p.copies[0], info)
	if err != nil || got.At == nil {
		return got.PickResult, err
	}
	if len(p.all) > 1 {
		p.wake(info, got.At)
	}
	if b := got.At; b.Silent() && !attempt.Hidden() && !b.Probe(time.Now(), r) && p.place.Moves() {
		if got = p.search(info, nil, got); got.At != b {
			p.place.Moved()
		}
	}
	if r != nil {
		r.Picked(got.At)
	}
	return watched(info.Ctx, r, got), nil
}

// wake asks the other copies for a pick when the first primary goes to b, and releases their picks.
// Idle copies then connect, as do children that connect only for a pick.
func (p *picker) wake(info balancer.PickInfo, b *place.Backend) {
	if _, done := p.woken.LoadOrStore(b, nil); done {
		return
	}
	for n, c := range p.all {
		if n != b.Number() {
			if got, err := pick(c, info); err == nil {
				got.Release()
			}
		}
	}
}

// watched returns the pick with a Done that reports an answer to a suspect backend, and no error to
// the child for an attempt that lost its race or was turned away. A canceled attempt and a missed
// deadline are no answer, because only headers may have been received.
func watched(ctx context.Context, r *place.Record, got place.Pick) balancer.PickResult {
	res, done, b, suspect := got.PickResult, got.Done, got.At, got.At.Suspect()
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
		wait, pushed := rpc.Pushback(info.Trailer)
		if code == codes.Canceled && context.Cause(ctx) == rpc.ErrLost || pushed && wait == 0 {
			info.Err = nil
		}
		done(info)
	}
	return res
}

// forHedge picks for a hedge of r's call. The lock of r must be held.
func (p *picker) forHedge(info balancer.PickInfo, r *place.Record) (got place.Pick, err error) {
	info.Ctx = race.Placed(info.Ctx, place.Hidden, nil) // a policy of this kind further down must not choose too
	for _, c := range p.copies {
		if got, err = pick(c, info); err == nil {
			break
		}
	}
	if err != nil || got.At == nil {
		return got, err
	}
	return p.search(info, r, got), nil
}

// search asks the child again unless the given pick has the best rank of the ready connections. It
// returns the best of the child's picks, the given one if no other is better, and releases the
// others. r is the hedge's record, and its lock must be held; it is nil for a primary.
func (p *picker) search(info balancer.PickInfo, r *place.Record, got place.Pick) place.Pick {
	now, first, varied := time.Now(), got.At, false
	rank := r.Rank(first, now)
	best := p.place.BestRank(r, rank, now)
	if rank == best || first.Fixed.Load() >= fixedAfter && rand.IntN(seldom) > 0 {
		return got
	}
	for n := 1; n < maxPicks && rank > best; n++ {
		next, err := pick(p.copies[n%len(p.copies)], info)
		if err != nil {
			continue
		}
		if next.At != nil {
			varied = varied || next.At != first
			if better := r.Rank(next.At, now); better < rank {
				got, next, rank = next, got, better
			}
		}
		next.Release()
	}
	if first.Fixed.Add(1); varied {
		first.Fixed.Store(0)
	}
	return got
}

// pick asks a child. At is nil with an error, and for a connection that this policy did not make.
func pick(child balancer.Picker, info balancer.PickInfo) (place.Pick, error) {
	res, err := child.Pick(info)
	if err != nil {
		return place.Pick{}, err
	}
	s, ok := res.SubConn.(*subConn)
	if !ok {
		return place.Pick{PickResult: res}, nil
	}
	res.SubConn = s.backend.SubConn
	return place.Pick{PickResult: res, At: s.backend}, nil
}
