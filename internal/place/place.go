// Package place records which backends the attempts of a call have used. The context of each attempt carries the [Record] of
// its call. The load-balancing policy of package balancer writes to it when it picks a backend. Both that policy and package
// call read it, to send hedges to other backends.
package place

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Record is the set of backends that a policy has picked for the attempts of one call, gRPC's own retries included.
//
// The primary's first pick is stored without a lock. For a hedge, the policy holds the lock from Used to HedgeWent, so that
// two hedges of a call do not pick the same backend at the same time.
type Record struct {
	sync.Mutex

	target  string  // of the connection; an interceptor may use an attempt's context for a call on another connection
	again   Counter // counts hedges sent to a backend that their call had used
	primary atomic.Pointer[Backend]

	retried atomic.Pointer[Backend] // what was picked last for a primary that gRPC has tried again; nil mostly

	others    []*Backend   // further picks of the primary, and all of the hedges
	picked    int          // the number of hedges for which a backend was picked
	lastHedge *Backend     // picked last for a hedge
	late      atomic.Int32 // the number of attempts that were late: see Late

	probe atomic.Pointer[probe] // the primary is to find out whether its connection is still silent; nil mostly
}

// Counter is a count that may be added to concurrently. *atomic.Int64 is one.
type Counter interface{ Add(n int64) int64 }

// Primary returns the context of the primary of a call on a connection with the given target, and the new record in that
// context. again counts hedges sent to a backend that their call had used.
func Primary(ctx context.Context, target string, again Counter) (context.Context, *Record) {
	p := &primary{Context: ctx}
	p.record.target, p.record.again = target, again
	return p, &p.record
}

// Hedge returns the context of a hedge of r's call.
func (r *Record) Hedge(ctx context.Context) context.Context { return &Hedge{Context: ctx, record: r} }

// primary is the context of a primary. It contains the record, so that both take one allocation. It passes Done and Value on to
// the wrapped context, except for the key of this package, so package context needs no goroutine for derived contexts.
type primary struct {
	context.Context
	record Record
}

// Hedge is the context of a hedge.
type Hedge struct {
	context.Context
	record *Record

	// Guarded by the record's lock.
	again bool     // counted
	at    *Backend // picked last
}

// Hide returns a context under which policies place a call as if they were not there: if hedging is switched off for it, and for a
// hedge further down the tree of policies. The record has no flag for this, as several picks with one attempt's context may run at
// once.
func Hide(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, hidden{}) }

// Hidden reports whether ctx is from [Hide].
func Hidden(ctx context.Context) bool { return ctx.Value(key{}) == hidden{} }

type (
	key    struct{}
	hidden struct{}
)

func (p *primary) Value(k any) any {
	if k == (key{}) {
		return p
	}
	return p.Context.Value(k)
}

func (h *Hedge) Value(k any) any {
	if k == (key{}) {
		return h
	}
	return h.Context.Value(k)
}

// Of returns the record in ctx, and the hedge if ctx is the context of one. Both are nil for a call that is not hedged, for
// a call on another target, and in a context from [Hide].
func Of(ctx context.Context, target string) (r *Record, h *Hedge) {
	switch a := ctx.Value(key{}).(type) {
	case *primary:
		r = &a.record
	case *Hedge:
		r, h = a.record, a
	}
	if r == nil || r.target != target {
		return nil, nil
	}
	return r, h
}

// Went records that b was picked for the primary.
func (r *Record) Went(b *Backend) {
	// If a tree has two policies, the upper one calls last, and replaces the record of the same backend with its own, because
	// it knows more backends. Two calls with the primary's context may pick at the same time, and both backends must be kept.
	for first := r.primary.Load(); first == nil || b.same(first); first = r.primary.Load() {
		if r.primary.CompareAndSwap(first, b) {
			return
		}
	}
	r.Lock()
	defer r.Unlock()
	r.retried.Store(b)
	if !r.Used(b) {
		r.others = append(r.others, b)
	}
}

// HedgeWent records that b was picked for the hedge h. If the call had used b before, it counts that, once for each hedge.
// The lock must be held.
func (r *Record) HedgeWent(h *Hedge, b *Backend) {
	if h.at == nil {
		r.picked++
	}
	h.at, r.lastHedge = b, b
	if !r.Used(b) {
		r.others = append(r.others, b)
	} else if !h.again {
		h.again = true
		r.again.Add(1)
	}
}

// Used reports whether an attempt of the call has used the backend that b connects to, over the same one of its connections
// if there are several. The lock must be held.
func (r *Record) Used(b *Backend) bool {
	return b.same(r.primary.Load()) || slices.ContainsFunc(r.others, b.same)
}

// Met reports whether an attempt of the call has used the address of b, over any connection. The lock must be held.
func (r *Record) Met(b *Backend) bool {
	return b.sameAddress(r.primary.Load()) || slices.ContainsFunc(r.others, b.sameAddress)
}

// PickedForHedge reports whether a policy has picked for a hedge of the call. It is false for a nil record.
func (r *Record) PickedForHedge() bool {
	if r == nil {
		return false
	}
	r.Lock()
	defer r.Unlock()
	return r.lastHedge != nil
}

// Spare reports whether there is a ready backend for hedge n that no attempt of the call has used. Each earlier hedge that has
// no backend yet takes one of these. It is false for a nil record, and before the first pick of the call.
func (r *Record) Spare(n int) bool {
	if r == nil {
		return false
	}
	r.Lock()
	defer r.Unlock()
	first := r.primary.Load()
	if first == nil {
		if len(r.others) == 0 {
			return false
		}
		first = r.others[0]
	}
	spare := map[id]struct{}{}
	for _, b := range first.roster.Ready() {
		if !r.Used(b) {
			if spare[b.id] = struct{}{}; len(spare) >= n-r.picked {
				return true
			}
		}
	}
	return false
}
