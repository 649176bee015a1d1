package place

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// silentFrom is the number of late calls without an answer in between that make a connection silent. One late call is a
	// sign too weak: requests differ, and stragglers are everywhere.
	silentFrom = 2
	// apart is the share of a call's delay that must lie between the first and the last of them. Calls that become late at the
	// same moment are one sign and not two.
	apart = 0.5
)

// silence is what the calls of one connection say about whether it still answers. A connection is silent from its second
// late call without an answer in between to its next answer. A primary's pick reads one word of it.
type silence struct {
	late atomic.Int32 // late calls since the last answer

	mu      sync.Mutex // guards the fields below and changes of late
	silent  bool
	first   time.Time // when the first of the late calls was noticed
	probe   time.Time // when the next primary may go there
	patient time.Time // when the next of them may be patient

	// The time that answers there take, if it is more than the usual delay. It is halved after each patient probe.
	took    time.Duration
	trusted time.Time // until then late calls mean nothing, because the connection is slow
}

// Suspect reports whether a call to the backend is late, and nothing was answered since. It is one atomic load.
func (s *silence) Suspect() bool { return s.late.Load() != 0 }

// Late says that a call there has not answered within the delay after which calls of its kind are hedged.
func (b *Backend) Late(now time.Time, delay time.Duration) {
	if b.roster.silenceOff.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.trusted) {
		return
	}
	switch n := b.late.Add(1); {
	case n == 1:
		b.first = now
	case !b.silent && n >= silentFrom && now.Sub(b.first) >= time.Duration(apart*float64(delay)):
		b.silent, b.probe, b.patient = true, now, b.first.Add(patientFrom)
	}
}

// Answered says that something came back from there, of whatever call.
func (s *silence) Answered() {
	if s.late.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late.Store(0)
	s.silent = false
}

func (s *silence) Silent() bool {
	_, silent := s.silentSince()
	return silent
}

// silentSince reports whether the connection is silent, and when the first late call of the silence was noticed.
func (s *silence) silentSince() (time.Time, bool) {
	if s.late.Load() < silentFrom {
		return time.Time{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, s.silent
}

// SetSilence sets whether connections can be silent at all. If not, those that are silent no longer are.
func (r *Roster) SetSilence(on bool) {
	if r.silenceOff.Swap(!on) || on {
		return
	}
	for _, b := range r.Ready() {
		b.Answered()
	}
}

func (r *Roster) Moved() { r.moved.Add(1) }

// Avoids reports whether primaries are to avoid silent connections. If more than half of the ready ones are silent, the
// network or the client itself is the reason, and none is avoided.
func (r *Roster) Avoids() bool {
	ready, silent := r.Ready(), 0
	for _, b := range ready {
		if b.Silent() {
			silent++
		}
	}
	return 2*silent <= len(ready)
}

// Late says that hedge n is due: the attempt before it, the primary for 1, has not answered within the delay. Each attempt
// counts once, however often its hedge is considered. It may be called for a nil record.
func (r *Record) Late(n int, now time.Time, delay time.Duration) {
	if r == nil {
		return
	}
	r.Lock()
	defer r.Unlock()
	if n <= r.late {
		return
	}
	r.late = n
	b := r.lastHedge
	if n == 1 {
		b = r.answering()
	}
	if b != nil { // it has been picked
		b.Late(now, delay)
	}
}

// answering is the backend of the primary, the last one if gRPC has tried it again.
func (r *Record) answering() *Backend { return cmp.Or(r.retried.Load(), r.primary.Load()) }

// Answered says that the hedge has answered, with the first message if it is a stream.
func (h *Hedge) Answered() {
	h.record.Lock()
	b := h.at
	h.record.Unlock()
	if b != nil {
		b.Answered()
	}
}

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
func (s *silence) Probe(now time.Time, r *Record) bool {
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
func (s *silence) patientDelay(now time.Time, delay time.Duration) time.Duration {
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
		b.probed(time.Now(), began, patient)
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
