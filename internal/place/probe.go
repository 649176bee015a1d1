package place

import "time"

const (
	// probeEvery is how often a primary may go to a silent connection, to find out whether it answers again. Each probe of one
	// that does not costs a hedge, so that probes become rarer the longer the silence lasts: the next one comes after a tenth
	// of that, mostProbeEvery at most.
	probeEvery     = 100 * time.Millisecond
	mostProbeEvery = 5 * time.Second

	// A probe whose hedge is due after the usual delay would be cancelled before a backend that is only slower than others can
	// answer. So some probes are patient: their hedges are due later. The first one comes when the silence has lasted
	// patientFrom, and the next ones each time that it has lasted four times as long, or mostPatientEvery longer. They wait for
	// twice the delay and a hundredth of the time that the silence has lasted, mostPatientWait at most.
	patientFrom      = time.Second
	mostPatientEvery = time.Minute
	mostPatientWait  = 500 * time.Millisecond

	// trust is for how long a connection is not silent after a patient probe was answered there: this many times what the
	// answer took, mostTrust at most. A backend that is only slow is thus avoided for a fiftieth of the time at most.
	trust     = 50
	mostTrust = time.Minute
)

// Probe reports whether the primary of r may go to this connection although it is silent. It is true now and then, see
// probeEvery, and always if the connection is not silent. r is nil if the primary has no record.
func (b *Backend) Probe(now time.Time, r *Record) bool {
	s := &b.silence
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent {
		return true
	}
	if now.Before(s.probe) {
		return false
	}
	s.probe = now.Add(min(max(now.Sub(s.first)/10, probeEvery), mostProbeEvery))
	if r != nil {
		r.probes.Store(true)
	}
	return true
}

// patientDelay returns how long a probe there waits for an answer, instead of the given delay.
func (b *Backend) patientDelay(now time.Time, delay time.Duration) time.Duration {
	s := &b.silence
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent {
		return 0
	}
	wait := min(2*s.took, 2*delay+mostPatientWait)
	if wait > delay {
		s.took /= 2
	}
	if lasted := now.Sub(s.first); !now.Before(s.patient) {
		s.patient = now.Add(min(3*lasted, mostPatientEvery))
		wait = max(wait, 2*delay+min(lasted/100, mostPatientWait))
	}
	return wait
}

// PatientDelay returns the delay of the primary's hedge, up to limit, if the primary is a patient probe, and 0 if the usual
// delay is right. It may be called for a nil record, and returns the same each time.
func (r *Record) PatientDelay(now time.Time, delay, limit time.Duration) time.Duration {
	if r == nil || !r.probes.Load() {
		return 0
	}
	r.Lock()
	defer r.Unlock()
	if !r.asked {
		r.asked = true
		if wait := min(r.answering().patientDelay(now, delay), limit); wait > delay {
			r.patientDelay = wait
		}
	}
	return r.patientDelay
}

// OnSilent reports whether the primary went to a connection that is silent. It may be called for a nil record.
func (r *Record) OnSilent() bool {
	if r == nil {
		return false
	}
	b := r.answering()
	return b != nil && b.Silent()
}

// Answered says that the primary of a call that began at the given time has answered, with the first message if it is a
// stream. It may be called for a nil record.
func (r *Record) Answered(began time.Time) {
	if r == nil {
		return
	}
	b := r.answering()
	if b == nil {
		return
	}
	if r.probes.Load() {
		r.Lock()
		patient := r.patientDelay
		r.Unlock()
		b.silence.probed(time.Now(), began, patient)
	}
	b.Answered()
}

// probed says that a probe was answered, which began at the given time and was patient for so long. Other calls do not say
// how slow a backend is: they may be of methods that take longer anywhere.
func (s *silence) probed(now, began time.Time, patient time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took := now.Sub(began); patient > 0 {
		s.took = min(took, patient)
		s.trusted = now.Add(min(trust*s.took, mostTrust))
	} else {
		s.took += (min(took, 2*s.took) - s.took) / 8
	}
}
