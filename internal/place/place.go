// Package place knows where the attempts of a call have been: the record, carried in each attempt's context, of the
// backends that a policy of package balancer has picked for them. It is what that policy and the scheduler share.
package place

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Record is where the attempts of one call have been. Every pick that a policy hands to gRPC counts, the former
// ones of an attempt that gRPC tries again included.
//
// The primary's first pick is noted without a lock. Whoever picks for a hedge holds the lock from looking to
// noting, so that two hedges of a call do not choose the same backend at once.
type Record struct {
	sync.Mutex

	target  string  // of the connection: attempts may lend their context to calls on others
	again   Counter // of the hedges that met a backend that their call had used
	primary atomic.Pointer[Backend]

	others []*Backend // further picks of the primary, and all of the hedges
	picked int        // hedges that have picked
}

// Counter is a count that may be added to concurrently. *atomic.Int64 is one.
type Counter interface{ Add(n int64) int64 }

// Primary returns the context of the primary attempt of a call on a connection with the given target, with a record
// in it, and that record. again counts hedges that meet a backend again.
func Primary(ctx context.Context, target string, again Counter) (context.Context, *Record) {
	p := &primary{Context: ctx}
	p.record.target, p.record.again = target, again
	return p, &p.record
}

// Hedge returns the context of a hedge of the call that r is the record of.
func (r *Record) Hedge(ctx context.Context) context.Context { return &Hedge{Context: ctx, record: r} }

// primary is the context of a primary: with the record inside, attaching one costs one allocation. It has the Done
// and, but for the key, the values of the context that it wraps, so contexts derived from it need no goroutine.
type primary struct {
	context.Context
	record Record
}

// Hedge is the context of a hedge.
type Hedge struct {
	context.Context
	record *Record

	picked, again bool // guarded by the record's lock
}

// Hide returns a context without the record that ctx carries. A policy that picks for a hedge gives it to its child,
// so that a policy further down the tree leaves the choice to the one above. What is said of one pick is kept in that
// pick's context: several picks for one attempt may run at once, because an interceptor may make several calls with
// one attempt's context.
func Hide(ctx context.Context) context.Context { return hidden{ctx} }

type hidden struct{ context.Context }

type key struct{}

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

func (h hidden) Value(k any) any {
	if k == (key{}) {
		return nil
	}
	return h.Context.Value(k)
}

// Of returns the record of the call on the target that ctx belongs to, and the hedge if it is one's. Both are nil
// for a call that is not hedged, and in a context from [Hide].
func Of(ctx context.Context, target string) (*Record, *Hedge) {
	var r *Record
	var h *Hedge
	switch a := ctx.Value(key{}).(type) {
	case *primary:
		r = &a.record
	case *Hedge:
		r, h = a.record, a
	default:
		return nil, nil
	}
	if r.target != target {
		return nil, nil
	}
	return r, h
}

// Went notes that the primary goes to b.
func (r *Record) Went(b *Backend) {
	// Of two policies in one tree, the upper one comes last, and knows of more backends. Two calls with the primary's
	// context may pick at once: of their backends neither may be lost.
	for {
		first := r.primary.Load()
		if first != nil && !b.same(first) {
			break
		}
		if r.primary.CompareAndSwap(first, b) {
			return
		}
	}
	r.Lock()
	defer r.Unlock()
	if !r.Used(b) {
		r.others = append(r.others, b)
	}
}

// HedgeWent notes that h, a hedge of the call, goes to b, with the lock held. It counts once for each hedge that b
// had been used already.
func (r *Record) HedgeWent(h *Hedge, b *Backend) {
	if !h.picked {
		h.picked = true
		r.picked++
	}
	if r.Used(b) {
		if !h.again {
			h.again = true
			r.again.Add(1)
		}
		return
	}
	r.others = append(r.others, b)
}

// Used reports, with the lock held, whether an attempt of the call has been at the backend that b connects to.
func (r *Record) Used(b *Backend) bool {
	return b.same(r.primary.Load()) || slices.ContainsFunc(r.others, b.same)
}

// HasPolicy reports whether there is a live policy on the call's target. A nil record knows of none.
func (r *Record) HasPolicy() bool {
	if r == nil {
		return false
	}
	policies.mu.Lock()
	defer policies.mu.Unlock()
	return len(policies.byTarget[r.target]) > 0
}

// Spare reports whether hedge n of the call would find a ready backend that no attempt has used, even after those
// hedges before it that have not picked yet. A nil record, and one of a call without any pick, know of none.
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
	wanted := n - r.picked
	var spare []*Backend
	for _, b := range first.policy.Ready() {
		if r.Used(b) || slices.ContainsFunc(spare, b.same) {
			continue
		}
		if spare = append(spare, b); len(spare) >= wanted {
			return true
		}
	}
	return false
}
