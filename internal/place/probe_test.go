package place_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/place"
)

const (
	usual      = 10 * ms // the delay of all calls here
	probeEvery = 100 * ms
)

// silent returns a silent connection, and a function that sends a probe on it.
func silent(t *testing.T) (*place.Backend, func() *place.Record) {
	_, all := enter(t, "a")
	b := all[0]
	fallSilent(b)
	return b, func() *place.Record {
		t.Helper()
		_, r := place.Primary(t.Context(), "target", new(atomic.Int64), false)
		if !b.Probe(time.Now(), r) {
			t.Fatal("no probe is due")
		}
		r.Went(b)
		return r
	}
}

// fallSilent makes a connection silent, unless late calls do not count there.
func fallSilent(b *place.Backend) {
	b.Late(time.Now(), usual)
	time.Sleep(usual)
	b.Late(time.Now(), usual)
}

// patientDelay returns the PatientDelay of a call with the usual delay and a limit of an hour.
func patientDelay(r *place.Record) time.Duration {
	return r.PatientDelay(usual, time.Hour)
}

// answer answers a probe after some time. The probe is late from the usual delay on.
func answer(r *place.Record, delay, after time.Duration) {
	time.Sleep(usual)
	r.PatientDelay(delay, time.Hour)
	time.Sleep(after - usual)
	r.Ended(after, true)
}

// In TestPatientDelay_GrowsWithTheSilence a probe is patient each time that the silence has lasted
// four times as long, and later each minute.
func TestPatientDelay_GrowsWithTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, probe := silent(t)
		began := time.Now().Add(-usual)
		for _, tc := range []struct{ at, want time.Duration }{
			{100 * ms, 0},
			{time.Second, 30 * ms}, {time.Second + 500*ms, 0}, {4100 * ms, 61 * ms}, {10 * time.Second, 0},
			{32 * time.Second, 340 * ms}, {60 * time.Second, 0}, {95 * time.Second, 520 * ms}, {150 * time.Second, 0},
			{156 * time.Second, 520 * ms}, {24 * time.Hour, 520 * ms},
		} {
			time.Sleep(time.Until(began.Add(tc.at)))
			r := probe()
			if got := patientDelay(r); got < tc.want || got > tc.want+ms {
				t.Errorf("after %v: a probe waits %v, want %v", tc.at, got, tc.want)
			}
			if again := patientDelay(r); again < tc.want || again > tc.want+ms {
				t.Errorf("after %v: asked again, it waits %v, want %v", tc.at, again, tc.want)
			}
		}
	})
}

// In TestPatientDelay_Limit a probe waits no longer than its limit. A probe with the usual delay as
// its limit is not patient.
func TestPatientDelay_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, probe := silent(t)
		time.Sleep(32 * time.Second)
		if got := probe().PatientDelay(usual, 100*ms); got != 100*ms {
			t.Errorf("it waits %v", got)
		}
		time.Sleep(time.Hour)
		r := probe()
		if got := r.PatientDelay(usual, usual); got != 0 {
			t.Errorf("it waits %v", got)
		}
		var none *place.Record
		if _, other := place.Primary(t.Context(), "target", new(atomic.Int64),
			false); patientDelay(other) != 0 || patientDelay(none) != 0 {
			t.Error("a call that is no probe is patient")
		}
	})
}

// In TestPatientDelay_ASlowBackend a patient probe is answered. Late calls then do not count for a
// while, and the next probes wait for twice the latency.
func TestPatientDelay_ASlowBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, probe := silent(t)
		time.Sleep(2 * time.Second)
		answer(probe(), usual, 20*ms)
		fallSilent(b)
		if b.Suspect() {
			t.Error("it is slow, and not silent")
		}
		time.Sleep(time.Second)
		if fallSilent(b); !b.Silent() {
			t.Error("it is trusted for a second")
		}
		if got := patientDelay(probe()); got != 40*ms {
			t.Errorf("a probe waits %v", got)
		}
		time.Sleep(probeEvery)
		if got := patientDelay(probe()); got != 20*ms {
			t.Errorf("the last probe was not answered, and the next one waits %v", got)
		}
		time.Sleep(probeEvery)
		if got := patientDelay(probe()); got != 0 {
			t.Errorf("two probes were not answered, and the next one waits %v", got)
		}
	})
}

// In TestPatientDelay_OtherMethods a patient probe is answered, and then calls of a method that
// takes 3 s on any backend. The slow method changes neither the time of trust nor the wait of a
// probe.
func TestPatientDelay_OtherMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, probe := silent(t)
		time.Sleep(time.Second)
		answer(probe(), usual, 25*ms)
		time.Sleep(2 * time.Second)
		for range 40 {
			_, r := place.Primary(t.Context(), "target", new(atomic.Int64), false)
			r.Went(b)
			r.Ended(3*time.Second, true)
			time.Sleep(ms)
		}
		fallSilent(b)
		if !b.Silent() {
			t.Error("it stands still, and is trusted")
		}
		if got := patientDelay(probe()); got != 50*ms {
			t.Errorf("a probe waits %v", got)
		}
	})
}

// In TestPatientDelay_OfALongCall a probe of a method that takes 3 s finds a slow backend. A probe
// of a quick method still waits no longer than its own delay allows.
func TestPatientDelay_OfALongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, probe := silent(t)
		time.Sleep(time.Second)
		answer(probe(), 2*time.Second, 3*time.Second)
		time.Sleep(time.Minute)
		if fallSilent(b); !b.Silent() {
			t.Error("it is trusted after a minute")
		}
		if got, most := patientDelay(probe()), 2*usual+500*ms; got != most {
			t.Errorf("a probe waits %v, want %v", got, most)
		}
	})
}
