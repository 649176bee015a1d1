package place_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/place"
)

// enter enters a policy of the target, until the test's end, with a ready connection to each
// address.
func enter(t *testing.T, addresses ...string) (*place.Backends, []*place.Backend) {
	policy := place.Enter("target")
	t.Cleanup(policy.Leave)
	var all []*place.Backend
	for _, a := range addresses {
		all = append(all, policy.NewBackend(nil, []resolver.Address{{Addr: a}}, 0))
	}
	policy.Show(all)
	return policy, all
}

func newRecord(t *testing.T) *place.Record {
	return place.New("target", new(atomic.Int64))
}

// hedge records the picks for a hedge of the call.
func hedge(t *testing.T, r *place.Record, picks ...*place.Backend) *place.Hedge {
	h := new(place.Hedge)
	r.Lock()
	defer r.Unlock()
	for _, b := range picks {
		r.HedgePicked(h, b)
	}
	return h
}

// TestRecord makes the picks of one call with four endpoints, two with the same address.
func TestRecord(t *testing.T) {
	_, all := enter(t, "a", "a", "b", "c")
	if n := place.Count("target").Ready; n != 3 || !place.Live() || place.Count("other").Ready != 0 {
		t.Errorf("%d backends", n)
	}
	var again atomic.Int64
	r := place.New("target", &again)
	for _, step := range []struct {
		picks func()
		used  [4]bool
		again int64 // hedges that met a backend again
	}{
		{func() {}, [4]bool{}, 0},
		{func() { r.Picked(all[0]) }, [4]bool{true, true}, 0},
		{func() { hedge(t, r, all[2]) }, [4]bool{true, true, true}, 0},
		{func() { r.Picked(all[3]) }, [4]bool{true, true, true, true}, 0}, // gRPC tries the primary again
		{func() { hedge(t, r, all[1], all[3]) }, [4]bool{true, true, true, true}, 1},
	} {
		step.picks()
		for i, b := range all {
			if used(r, b) != step.used[i] || again.Load() != step.again {
				t.Errorf("want %+v: %d is not, or %d hedges met a backend again", step.used, i, again.Load())
			}
		}
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
	for range 3000 {
		r := newRecord(t)
		var ready atomic.Int32
		went := func(b *place.Backend) {
			for ready.Add(1); ready.Load() < 2; { // so that both begin together
				runtime.Gosched()
			}
			r.Picked(b)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			went(all[0])
		}()
		went(all[1])
		<-done
		if !used(r, all[0]) || !used(r, all[1]) {
			t.Fatalf("used: %v, %v", used(r, all[0]), used(r, all[1]))
		}
	}
}

// TestRank_AClockSetBack: a connection that has not answered hedges stays mute when the clock is
// set back by two hours.
func TestRank_AClockSetBack(t *testing.T) {
	policy, _ := enter(t)
	b, begin := policy.NewBackend(nil, []resolver.Address{{Addr: "a"}}, 1), time.Now()
	b.HedgeSent(begin)
	b.HedgeSent(begin.Add(2 * time.Second)) // a probe; the next one is due 2 s later
	now := begin.Add(3 * time.Second)
	back := now
	*(*uint64)(unsafe.Pointer(&back)) -= 7200 << 30 // the wall clock, and not the monotonic one
	if now.Unix()-back.Unix() != 7200 || back.Sub(now) != 0 {
		t.Fatalf("%v is not %v set back", back, now)
	}
	r := newRecord(t)
	r.Lock()
	defer r.Unlock()
	if rank, want := r.Rank(b, back), r.Rank(b, now); rank != want || want != place.Mute {
		t.Errorf("rank %d, and %d before the clock was set back", rank, want)
	}
}
