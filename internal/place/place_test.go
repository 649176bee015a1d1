package place_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// TestKnown_IsShared has two connections to one address, of two policies. With a scheduler's
// knowledge they share late calls, answers and probes, unless their numbers differ. A connection that
// alone has no answer is silent by itself.
func TestKnown_IsShared(t *testing.T) {
	for _, tc := range []struct {
		name   string
		shared bool
		second int    // the number of the second connection
		events string // each event at the first connection is in capitals; l is late, a an answer, w a wait
		want   [2]bool
	}{
		{name: "one late call each", shared: true, events: "Lwl", want: [2]bool{true, true}},
		{name: "without a scheduler", events: "Lwl"},
		{name: "two of one, without a scheduler", events: "LwL", want: [2]bool{true, false}},
		{name: "an answer of the other", shared: true, events: "LwlA"},
		{name: "one connection alone", shared: true, events: "LaLwaLa", want: [2]bool{true, false}},
		{name: "another number", shared: true, second: 1, events: "Lwl"},
		{name: "two of one, another number", shared: true, second: 1, events: "LwLa", want: [2]bool{true, false}},
		{name: "late while the address is silent", shared: true, events: "LwlwLwLwa"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b [2]*place.Backend
				known := place.NewKnown()
				for i := range b {
					policy, _ := enter(t)
					b[i] = policy.NewBackend(nil, []resolver.Address{{Addr: "a"}}, i*tc.second)
					policy.Show(b[i : i+1])
					if tc.shared {
						r := newRecord(t)
						r.Share(known)
						r.Picked(b[i])
					}
				}
				for _, e := range tc.events {
					switch e {
					case 'L':
						b[0].Late(time.Now(), 10*ms)
					case 'l':
						b[1].Late(time.Now(), 10*ms)
					case 'A':
						b[0].Answered()
					case 'a':
						b[1].Answered()
					case 'w':
						time.Sleep(5 * ms)
					}
				}
				if got := [2]bool{b[0].Silent(), b[1].Silent()}; got != tc.want {
					t.Errorf("silent: %v, want %v", got, tc.want)
				}
				if !tc.want[0] || !tc.want[1] {
					return
				}
				if r := newRecord(t); !b[0].Probe(time.Now(), r) || b[1].Probe(time.Now(), r) {
					t.Error("want one probe for both connections")
				}
			})
		})
	}
}

const (
	usual      = 10 * ms // the delay of all calls here
	probeEvery = 100 * ms
)

// silentBackend is a silent connection.
type silentBackend struct {
	*place.Backend
	t     *testing.T
	began time.Time // the silence
}

// whileSilent runs a test of a silent connection in virtual time.
func whileSilent(t *testing.T, test func(b silentBackend)) {
	synctest.Test(t, func(t *testing.T) {
		_, all := enter(t, "a")
		b := silentBackend{all[0], t, time.Now()}
		fallSilent(b.Backend)
		test(b)
	})
}

// fallSilent makes a connection silent, unless late calls do not count there.
func fallSilent(b *place.Backend) {
	b.Late(time.Now(), usual)
	time.Sleep(usual)
	b.Late(time.Now(), usual)
}

// probe sends a probe on the connection after a while.
func (b silentBackend) probe(after time.Duration) *place.Record {
	b.t.Helper()
	time.Sleep(after)
	r := newRecord(b.t)
	if !b.Probe(time.Now(), r) {
		b.t.Fatal("no probe is due")
	}
	r.Picked(b.Backend)
	return r
}

// waits checks the delay of a probe with the usual delay, twice.
func (b silentBackend) waits(r *place.Record, want time.Duration) {
	b.t.Helper()
	for range 2 {
		if got := r.PatientDelay(usual, time.Hour); got < want || got > want+ms {
			b.t.Errorf("after %v: a probe waits %v, want %v", time.Since(b.began), got, want)
		}
	}
}

// answer answers a probe after some time. The probe is late from the usual delay on.
func answer(r *place.Record, delay, after time.Duration) {
	time.Sleep(usual)
	r.PatientDelay(delay, time.Hour)
	time.Sleep(after - usual)
	r.Ended(after, true)
}

// In TestPatientDelay a probe is patient each time that the silence has lasted four times as long,
// and later each minute. It waits no longer than its limit, and is not patient if that is the usual
// delay.
func TestPatientDelay(t *testing.T) {
	whileSilent(t, func(b silentBackend) {
		for _, tc := range []struct{ at, want time.Duration }{
			{100 * ms, 0},
			{time.Second, 30 * ms}, {time.Second + 500*ms, 0}, {4100 * ms, 61 * ms}, {10 * time.Second, 0},
			{32 * time.Second, 340 * ms}, {60 * time.Second, 0}, {95 * time.Second, 520 * ms}, {150 * time.Second, 0},
			{156 * time.Second, 520 * ms}, {24 * time.Hour, 520 * ms},
		} {
			b.waits(b.probe(time.Until(b.began.Add(tc.at))), tc.want)
		}
		for _, limit := range []time.Duration{100 * ms, usual} {
			want := limit
			if limit == usual {
				want = 0
			}
			if got := b.probe(time.Hour).PatientDelay(usual, limit); got != want {
				t.Errorf("with a limit of %v a probe waits %v", limit, got)
			}
		}
		b.waits(newRecord(t), 0) // no probe
		b.waits(nil, 0)
	})
}

// In TestPatientDelay_ASlowBackend a patient probe is answered. Late calls then do not count for 50
// times the latency, at most a minute, and the next probes wait for twice the latency, but no longer
// than the delay of their own method allows. Calls of a method that takes 3 s on any backend change
// neither.
func TestPatientDelay_ASlowBackend(t *testing.T) {
	for _, tc := range []struct {
		name              string
		delay, took       time.Duration // of the probe
		trusted           time.Duration
		others            int
		first, next, last time.Duration // waits
	}{
		{name: "slow", delay: usual, took: 20 * ms, trusted: time.Second, first: 40 * ms, next: 20 * ms},
		{name: "other methods", delay: usual, took: 25 * ms, trusted: 1250 * ms, others: 40, first: 50 * ms, next: 25 * ms,
			last: 25 * ms / 2},
		{name: "answered after its hedge was due", delay: usual, took: 10 * time.Second, trusted: 2 * time.Second,
			first: 80 * ms, next: 40 * ms, last: 20 * ms},
		{name: "a long call", delay: 2 * time.Second, took: 3 * time.Second, trusted: time.Minute, first: 2*usual + 500*ms,
			next: 2*usual + 500*ms, last: 2*usual + 500*ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			whileSilent(t, func(b silentBackend) {
				answer(b.probe(2*time.Second), tc.delay, tc.took)
				if fallSilent(b.Backend); b.Suspect() {
					t.Error("it is slow, and not silent")
				}
				for range tc.others {
					r := newRecord(t)
					r.Picked(b.Backend)
					r.Ended(3*time.Second, true)
				}
				time.Sleep(tc.trusted)
				if fallSilent(b.Backend); !b.Silent() {
					t.Error("the connection is still trusted")
				}
				b.waits(b.probe(0), tc.first)
				b.waits(b.probe(probeEvery), tc.next) // the last probe was not answered
				b.waits(b.probe(probeEvery), tc.last) // two were not
			})
		})
	}
}
