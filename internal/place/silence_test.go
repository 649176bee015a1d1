package place_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/stats"
)

const ms = time.Millisecond

// TestSilence goes step by step through what makes a connection silent, and what ends that.
func TestSilence(t *testing.T) {
	type step struct {
		what string
		do   func(b *place.Backend)
		want bool
	}
	late := func(b *place.Backend) { b.Late(time.Now(), 10*ms) }
	answered := func(b *place.Backend) { b.Answered() }
	wait := func(d time.Duration) func(*place.Backend) {
		return func(*place.Backend) { time.Sleep(d) }
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"two late calls", []step{{"late", late, false}, {"wait", wait(5 * ms), false}, {"late", late, true}, {"answer", answered, false}}},
		{"late at the same moment", []step{{"late", late, false}, {"late", late, false}, {"late", late, false}, {"wait", wait(5 * ms), false}, {"late", late, true}}},
		{"an answer in between", []step{{"late", late, false}, {"wait", wait(5 * ms), false}, {"answer", answered, false}, {"late", late, false}, {"wait", wait(5 * ms), false}, {"late", late, true}}},
		{"answers alone", []step{{"answer", answered, false}, {"answer", answered, false}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy := place.Enter("target")
				defer policy.Leave()
				b := policy.NewBackend(nil, []resolver.Address{{Addr: "a"}}, 0)
				policy.Show([]*place.Backend{b})
				for i, s := range tc.steps {
					if s.do(b); b.Silent() != s.want {
						t.Errorf("step %d, %s: silent is not %v", i, s.what, s.want)
					}
					if told := len(place.Count("target").Silent) > 0; told != s.want {
						t.Errorf("step %d, %s: told %v", i, s.what, told)
					}
				}
			})
		})
	}
}

// TestSilence_Probes counts the primaries that may go to a silent connection.
func TestSilence_Probes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := place.Enter("target")
		defer policy.Leave()
		b := policy.NewBackend(nil, []resolver.Address{{Addr: "a"}}, 0)
		policy.Show([]*place.Backend{b})
		for range 2 {
			if !b.Probe(time.Now(), nil) {
				t.Error("one that speaks is open to all")
			}
		}
		b.Late(time.Now(), 0)
		time.Sleep(ms)
		b.Late(time.Now(), 0)
		probes := 0
		for range 1000 { // a second
			if b.Probe(time.Now(), nil) {
				probes++
			}
			time.Sleep(ms)
		}
		if probes != 10 {
			t.Errorf("%d probes in a second, want 10", probes)
		}
		if since := place.Count("target").Silent[0].Since; time.Since(since) != 1001*ms {
			t.Errorf("silent since %v ago", time.Since(since))
		}
		policy.SetSilence(false)
		if b.Late(time.Now(), 0); b.Suspect() {
			t.Error("nobody listens")
		}
	})
}

// TestSilence_MostOfThem lets one connection after the other fall silent.
func TestSilence_MostOfThem(t *testing.T) {
	policy := place.Enter("target")
	defer policy.Leave()
	var all []*place.Backend
	for _, address := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, policy.NewBackend(nil, []resolver.Address{{Addr: address}}, 0))
	}
	policy.Show(all)
	for i, b := range all {
		now := time.Now()
		b.Late(now, 0)
		b.Late(now, 0)
		if want := i < 2; policy.Avoids() != want {
			t.Errorf("%d of 5 are silent: avoided is not %v", i+1, want)
		}
	}
}

// TestRecord_Late says whose lateness counts: each attempt's once, at the backend where it is.
func TestRecord_Late(t *testing.T) {
	policy := place.Enter("target")
	defer policy.Leave()
	backend := func(address string) *place.Backend {
		return policy.NewBackend(nil, []resolver.Address{{Addr: address}}, 0)
	}
	a, b, c := backend("a"), backend("b"), backend("c")
	now := time.Now()
	_, r := place.Primary(t.Context(), "target", new(atomic.Int64))
	r.Late(1, now, ms) // not picked yet: it has to wait for a connection
	_, r = place.Primary(t.Context(), "target", new(atomic.Int64))
	r.Went(a)
	r.Late(1, now, ms)
	r.Late(1, now.Add(ms), ms) // the hedge is considered again
	if !a.Suspect() || a.Silent() {
		t.Error("one call is late at a")
	}
	h := r.Hedge(t.Context()).(*place.Hedge)
	r.Lock()
	r.HedgeWent(h, b)
	r.Unlock()
	r.Late(2, now, ms)
	if !b.Suspect() {
		t.Error("the hedge is late at b")
	}
	h.Answered()
	r.Answered(now)
	if a.Suspect() || b.Suspect() {
		t.Error("both have answered")
	}
	r.Went(c) // gRPC tries the primary again
	r.Late(3, now, ms)
	_, r = place.Primary(t.Context(), "target", new(atomic.Int64))
	r.Went(a)
	r.Went(c)
	if r.Late(1, now, ms); a.Suspect() || !c.Suspect() {
		t.Error("the primary is late at c")
	}
	var none *place.Record
	none.Late(1, now, ms)
	none.Answered(now)
}

// TestCount_Silent lists each address with silent connections once, those of several policies included.
func TestCount_Silent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for range 2 { // a pool of two
			policy := place.Enter("target")
			defer policy.Leave()
			var all []*place.Backend
			for n, address := range []string{"a", "a", "b", "c"} {
				all = append(all, policy.NewBackend(nil, []resolver.Address{{Addr: address}}, n%2))
			}
			policy.Show(all)
			for _, b := range all[:3] {
				b.Late(time.Now(), 0)
				b.Late(time.Now(), 0)
				time.Sleep(ms)
			}
		}
		want := []stats.SilentBackend{{Address: "a", Connections: 4, Since: began}, {Address: "b", Connections: 2, Since: began.Add(2 * ms)}}
		if got := place.Count("target").Silent; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
