package place_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/place"
)

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
