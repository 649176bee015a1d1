// Package place records which backends the attempts of a call have used. The context of each
// attempt, race.Context, has the [Record] of its call. Package balancer updates the record when it
// picks a backend, and reads it, as package call does, to send hedges to other backends.
package place

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
)

// Record is the set of backends that a policy has picked for the attempts of one call, gRPC's
// retries included. For a hedge, the policy holds the lock from Rank to HedgePicked, so that two
// hedges of a call do not pick the same backend at the same time.
type Record struct {
	sync.Mutex

	target  string        // an interceptor may use an attempt's context for a call on another connection
	known   *Known        // to the scheduler, of the target; nil: unknown
	again   *atomic.Int64 // hedges sent to a backend that their call had used
	primary atomic.Pointer[Backend]

	retried atomic.Pointer[Backend] // the last pick for a primary that gRPC has retried; usually nil

	others    []*Backend // further picks of the primary, and all picks of hedges
	lastHedge *Backend   // the last pick for a hedge
	late      int32      // the number of attempts that were late: see NoteLate
	repeated  bool       // a hedge was sent to a backend that the call had used

	probe atomic.Pointer[probe] // not nil if the primary is a probe of a silent connection

	request    any            // of a unary call; nil for a stream, which is picked before its request is known
	replayable func(any) bool // reports whether a hedge could send the request
}

// New returns the record of a call on a connection with the given target. again counts hedges sent
// to a backend that their call had used.
func New(target string, again *atomic.Int64) *Record {
	return &Record{target: target, again: again}
}

// Hidden stands for the record of calls that only the child places: calls for which hedging is off,
// and hedges further down the tree of policies.
var Hidden = new(Record)

// IsFor reports whether picks on a connection with the given target are recorded. It is false for a
// nil record.
func (r *Record) IsFor(target string) bool { return r != nil && r != Hidden && r.target == target }

// Share makes the policy that picks for the call share a scheduler's knowledge of the target. It must
// be called before the call's first pick.
func (r *Record) Share(k *Known) { r.known = k }

// SetRequest sets the request of a unary call, before the call's first pick, and the function that
// reports whether a hedge could send it. A stream has neither.
func (r *Record) SetRequest(request any, replayable func(any) bool) {
	r.request, r.replayable = request, replayable
}

// Hedge is the picks of a hedge. The record's lock guards it.
type Hedge struct {
	again bool     // counted
	at    *Backend // the last pick
}

// Picked records that b was picked for the primary.
func (r *Record) Picked(b *Backend) {
	b.backends.join(r.known)
	// In a tree with two policies, the upper one calls last, and replaces the backend with its own.
	// Two picks with the primary's context may run at the same time, and both must be kept.
	for first := r.primary.Load(); first == nil || b.same(first); first = r.primary.Load() {
		if r.primary.CompareAndSwap(first, b) {
			return
		}
	}
	r.Lock()
	defer r.Unlock()
	r.retried.Store(b)
	if !r.used(b) {
		r.others = append(r.others, b)
	}
}

// HedgePicked records that b was picked for the hedge h. If the call had used b, the hedge is counted,
// once. The lock must be held.
func (r *Record) HedgePicked(h *Hedge, b *Backend) {
	h.at, r.lastHedge = b, b
	b.hedgeSent(time.Now())
	if !r.used(b) {
		r.others = append(r.others, b)
		return
	}
	if r.repeated = true; !h.again {
		h.again = true
		r.again.Add(1)
	}
}

// used reports whether an attempt of the call has used b. The lock must be held.
func (r *Record) used(b *Backend) bool {
	return b.same(r.primary.Load()) || slices.ContainsFunc(r.others, b.same)
}

// The ranks of a connection, best first. For a hedge, notSilent and silent are one worse if its
// call has used the address.
const (
	notSilent = 2 * iota
	silent
	usedBefore
	mute
	usedTwice
)

// Rank returns the rank of a connection for a hedge of r's call; 0 is best. The lock must be held.
// A nil record stands for a primary.
func (r *Record) Rank(b *Backend, now time.Time) int {
	switch {
	case r == nil && b.Silent():
		return silent
	case r == nil:
		return notSilent
	case r.used(b) && r.repeated:
		return usedTwice
	case (b.number > 0 || b.Silent()) && b.mute(now):
		return mute
	case r.used(b):
		return usedBefore
	}
	rank := notSilent
	if b.Silent() {
		rank = silent
	}
	sameAddress := func(used *Backend) bool { return used != nil && used.address == b.address }
	if sameAddress(r.primary.Load()) || slices.ContainsFunc(r.others, sameAddress) {
		rank++
	}
	return rank
}

// Spare reports whether a hedge can go to a ready backend that the call has not used. It is false
// for a nil record, and if the child returned a used backend for an earlier hedge.
func (r *Record) Spare() bool {
	if r == nil {
		return false
	}
	r.Lock()
	defer r.Unlock()
	first := r.primary.Load()
	return first != nil && !r.repeated &&
		slices.ContainsFunc(first.backends.Ready(), func(b *Backend) bool { return !r.used(b) })
}

// Pick is a pick of the child, and the backend that was picked.
type Pick struct {
	balancer.PickResult
	At *Backend
}

// Release gives the pick back to the child, as gRPC does when a picked connection is not ready.
func (p Pick) Release() {
	if p.Done != nil {
		p.Done(balancer.DoneInfo{})
	}
}
