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
	// twice the delay and a hundredth of the time that the silence has lasted, mostPatience at most.
	patientFrom      = time.Second
	mostPatientEvery = time.Minute
	mostPatience     = 500 * time.Millisecond

	// trust is for how long a connection is not silent after a patient probe was answered there: this many times what the
	// answer took, mostTrust at most. A backend that is only slow is thus avoided for a fiftieth of the time at most.
	trust     = 50
	mostTrust = time.Minute
)

// slowness is what a connection takes to answer, if that was found to be more than the delay after which calls are hedged. Only
// probes that are answered say so, since other calls may be of methods that take longer anywhere. It is guarded by the silence's
// lock.
type slowness struct {
	took    time.Duration // 0 if nothing was found; half as much after each probe that it has made patient
	trusted time.Time     // until then late calls mean nothing, because the connection is slow
}

// proven notes that a probe was answered after its usual delay.
func (s *slowness) proven(now time.Time, took time.Duration) {
	s.took, s.trusted = took, now.Add(min(trust*took, mostTrust))
}

// follow moves what is known toward what the answer to another probe took.
func (s *slowness) follow(took time.Duration) { s.took += (min(took, 2*s.took) - s.took) / 8 }

// Probe reports whether the primary of r, nil if it has no record, may go to this connection although it is silent. It is true
// now and then, see probeEvery, and always if the connection is not silent.
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

// patience is how long a probe there waits for an answer if it is hedged after the given delay otherwise.
func (b *Backend) patience(now time.Time, delay time.Duration) time.Duration {
	s := &b.silence
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent {
		return 0
	}
	wait := min(2*s.slow.took, 2*delay+mostPatience)
	if wait > delay {
		s.slow.took /= 2
	}
	if lasted := now.Sub(s.first); !now.Before(s.patient) {
		s.patient = now.Add(min(3*lasted, mostPatientEvery))
		wait = max(wait, 2*delay+min(lasted/100, mostPatience))
	}
	return wait
}

// Patience returns the delay of the primary's hedge if the primary is a patient probe, and 0 if not. Otherwise the hedge is due
// after the given delay. The primary waits no longer than limit. Patience may be called for a nil record, and returns the same
// each time.
func (r *Record) Patience(now time.Time, delay, limit time.Duration) time.Duration {
	if r == nil || !r.probes.Load() {
		return 0
	}
	r.Lock()
	defer r.Unlock()
	if !r.asked {
		r.asked = true
		if wait := min(r.answering().patience(now, delay), limit); wait > delay {
			r.patience = wait
		}
	}
	return r.patience
}

// Answered notes that the primary of a call that began at the given time has answered, with the first message if it is a
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
		b.probed(began, r)
	}
	b.Answered()
}

// probed notes that a probe was answered there.
func (b *Backend) probed(began time.Time, r *Record) {
	r.Lock()
	patience := r.patience
	r.Unlock()
	now, s := time.Now(), &b.silence
	s.mu.Lock()
	defer s.mu.Unlock()
	if patience > 0 {
		s.slow.proven(now, min(now.Sub(began), patience))
	} else {
		s.slow.follow(now.Sub(began))
	}
}
