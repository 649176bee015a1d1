package place_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/place"
)

// enter enters a policy of the target, until the test's end, with a ready connection to each
// address.
func enter(t *testing.T, addresses ...string) (*place.Roster, []*place.Backend) {
	policy := place.Enter("target")
	t.Cleanup(policy.Leave)
	var all []*place.Backend
	for _, a := range addresses {
		all = append(all, policy.NewBackend(nil, []resolver.Address{{Addr: a}}, 0))
	}
	policy.Show(all)
	return policy, all
}

type key struct{}

// TestRule08_NoGoroutineForTheRecord derives cancelable contexts from an attempt's, as gRPC does:
// cancellation must need no goroutine.
func TestRule08_NoGoroutineForTheRecord(t *testing.T) {
	caller, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Hour)
	defer cancel()
	own, end := context.WithCancelCause(caller)
	primary, record := place.Primary(own, "target", new(atomic.Int64), false)
	hedge := record.Hedge(own)
	before := runtime.NumGoroutine()
	for _, ctx := range []context.Context{primary, hedge, place.Hide(hedge)} {
		derived, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if derived.Value(key{}) != "value" {
			t.Error("the caller's values are lost")
		}
		defer func() {
			if derived.Err() == nil {
				t.Error("the end of an attempt did not reach gRPC")
			}
		}()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	end(nil)
}

func TestOf(t *testing.T) {
	ctx, record := place.Primary(t.Context(), "target", new(atomic.Int64), false)
	hedge := record.Hedge(t.Context())
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		target string
		record *place.Record
		hedge  bool
	}{
		{"primary", ctx, "target", record, false},
		{"hedge", hedge, "target", record, true},
		{"a call on another connection, under an attempt's context", hedge, "other", nil, false},
		{"a hedge whose policy hides the record from its child", place.Hide(hedge), "target", nil, false},
		{"no attempt", t.Context(), "target", nil, false},
	} {
		if r, h := place.Of(tc.ctx, tc.target); r != tc.record || (h != nil) != tc.hedge {
			t.Errorf("%s: %p, %v", tc.name, r, h)
		}
	}
}

// TestRecord makes the picks of one call with four endpoints, two with the same address.
func TestRecord(t *testing.T) {
	_, all := enter(t, "a", "a", "b", "c")
	a, a2, b, c := all[0], all[1], all[2], all[3]
	if n := place.Count("target").Ready; n != 3 || !place.Live() || place.Count("other").Ready != 0 {
		t.Errorf("%d backends", n)
	}

	var again atomic.Int64
	_, r := place.Primary(t.Context(), "target", &again, false)
	r.Went(a)
	if !used(r, a) || !used(r, a2) || used(r, b) {
		t.Error("only the address of the primary is used")
	}
	h := r.Hedge(t.Context()).(*place.Hedge)
	r.Lock()
	r.HedgeWent(h, b)
	r.Unlock()
	r.Went(c) // gRPC tried the primary again
	if !used(r, b) || !used(r, c) {
		t.Error("all are used")
	}
	r.Lock()
	h2 := r.Hedge(t.Context()).(*place.Hedge)
	r.HedgeWent(h2, a2)
	r.HedgeWent(h2, c) // gRPC tried the hedge again
	r.Unlock()
	if n := again.Load(); n != 1 {
		t.Errorf("%d hedges met a backend again, want 1", n)
	}
}

// used reports whether the call has used b.
func used(r *place.Record, b *place.Backend) bool {
	r.Lock()
	defer r.Unlock()
	return r.Rank(b, time.Now()) >= 4
}

// TestWent_AtOnce makes two picks with the primary's context at the same time: both backends count
// as used.
func TestWent_AtOnce(t *testing.T) {
	_, all := enter(t, "a", "b")
	a, b := all[0], all[1]
	for range 3000 {
		_, r := place.Primary(t.Context(), "target", new(atomic.Int64), false)
		var ready atomic.Int32
		went := func(b *place.Backend) {
			for ready.Add(1); ready.Load() < 2; { // so that both begin together
				runtime.Gosched()
			}
			r.Went(b)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			went(a)
		}()
		went(b)
		<-done
		if !used(r, a) || !used(r, b) {
			t.Fatalf("used: %v, %v", used(r, a), used(r, b))
		}
	}
}

// TestBestRank_AllocatesNothing ranks the backends of a long list.
func TestBestRank_AllocatesNothing(t *testing.T) {
	var addresses []string
	for i := range 1000 {
		addresses = append(addresses, fmt.Sprintf("10.0.%d.%d:443", i/256, i%256))
	}
	policy, ready := enter(t, addresses...)
	_, r := place.Primary(t.Context(), "target", new(atomic.Int64), false)
	r.Went(ready[0])
	now := time.Now()
	if n := testing.AllocsPerRun(100, func() { policy.BestRank(r, 4, now) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
