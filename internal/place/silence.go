package place

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

// silentFrom is the number of late calls, with no answer between them, that makes a connection
// silent.
const silentFrom = 2

// silence is the state that shows whether a connection, or all that share it, still answer: see
// docs/other-backends.md.
type silence struct {
	late atomic.Int32 // late calls since the last answer

	mu          sync.Mutex // guards the fields below and changes of late
	silent      bool
	first       time.Time // when the first of the late calls was noticed
	lastLate    time.Time // when a call was last late in a reported silence; zero: never
	probe       time.Time // when the next primary may be a probe
	hedged      time.Time // when the connection was last picked for a primary that may be hedged
	nextPatient time.Time // when the next probe may be patient

	took    time.Duration // latency of the last answered patient probe; halved by each patient probe
	trusted time.Time     // until then late calls do not count, because the connection is slow
}

// A connection that only hedges use, an extra or a silent one, may be dead without notice. If it has
// not answered for muteFrom after a hedge, further hedges are probes: one at once, then one each time
// the silence has doubled, or has lasted maxMuteProbe longer.
const (
	muteFrom     = time.Second
	maxMuteProbe = 30 * time.Second
)

// origin is the zero of atomic times, which a wall clock that is set back does not change.
var origin = time.Now()

// mute reports whether hedges should go elsewhere, because hedges on this connection were not
// answered.
func (b *Backend) mute(now time.Time) bool {
	first, at := b.firstHedge.Load(), int64(now.Sub(origin))
	return first != 0 && at >= first+int64(muteFrom) && at < b.nextHedge.Load()
}

// hedgeSent notes that a hedge is sent to the connection.
func (b *Backend) hedgeSent(now time.Time) {
	at := int64(now.Sub(origin))
	if b.firstHedge.CompareAndSwap(0, at) {
		b.nextHedge.Store(at)
	} else if lasted := at - b.firstHedge.Load(); lasted >= int64(muteFrom) && at >= b.nextHedge.Load() {
		b.nextHedge.Store(at + min(lasted, int64(maxMuteProbe)))
	}
}

// Suspect reports whether the connection has had a late call or a hedge, and no answer since, or one
// that shares its silence a late call.
func (b *Backend) Suspect() bool {
	return b.own.late.Load() != 0 || b.firstHedge.Load() != 0 || b.shared.Load().late.Load() != 0
}

// Late records a call that was not answered within its delay. It reports whether the connection's own
// silence, or the shared one, has lasted for reportedAfter.
func (b *Backend) Late(now time.Time, delay time.Duration) (silent bool) {
	if b.backends.silenceOff.Load() {
		return false
	}
	shared := b.shared.Load()
	reported := shared.called(now, delay)
	if shared != &b.own && shared.answers(now) { // otherwise the shared silence explains the late call
		reported = b.own.called(now, delay)
	}
	return reported
}

// Answered records an answer of any call.
func (b *Backend) Answered() {
	if b.firstHedge.Load() != 0 { // most answers write nothing
		b.firstHedge.Store(0)
	}
	b.own.answered()
	b.shared.Load().answered()
}

// Silent reports whether the connection is silent, by its own silence or the shared one.
func (b *Backend) Silent() bool { return b.silence() != nil }

// silence returns the silence in force: the shared one, or else the connection's own; nil if there is none.
func (b *Backend) silence() *silence {
	switch shared := b.shared.Load(); {
	case shared.holds() && !b.backends.silenceOff.Load():
		return shared
	case b.own.holds():
		return &b.own
	}
	return nil
}

// answers reports whether there is neither a silence nor an answer to a recent patient probe.
func (s *silence) answers(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.silent && !now.Before(s.trusted)
}

// called records a late call. It reports whether the silence has lasted for reportedAfter.
func (s *silence) called(now time.Time, delay time.Duration) (reported bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.trusted) {
		return false
	}
	n := s.late.Add(1)
	switch {
	case n == 1:
		s.first, s.lastLate = now, time.Time{}
	case !s.silent && n >= silentFrom && now.Sub(s.first) >= delay/2: // calls that are late together count once
		s.silent, s.probe, s.hedged, s.nextPatient = true, now, now, s.first.Add(patientFrom)
	}
	if !s.silent || n <= silentFrom || now.Sub(s.first) < reportedAfter {
		return false
	}
	s.lastLate = now
	return true
}

// A silence is reported once a third call is late reportedAfter after the first, and no longer once
// no call was late for forgotten. Most are shorter, because two stragglers in a row begin one.
const (
	reportedAfter = 10 * time.Second
	forgotten     = time.Minute
)

func (s *silence) answered() {
	if s.late.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late.Store(0)
	s.silent = false
}

func (s *silence) holds() bool {
	if s.late.Load() < silentFrom {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// reported returns when the silence's first late call was noticed, and whether the silence is
// reported.
func (s *silence) reported(now time.Time) (since time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, s.silent && !s.lastLate.IsZero() && now.Sub(s.lastLate) < forgotten
}

// SetSilence sets whether connections can be silent.
func (r *Backends) SetSilence(on bool) {
	if r.silenceOff.Swap(!on) || on {
		return
	}
	for _, b := range r.Ready() {
		b.Answered()
	}
}

// NoteLate records that hedge n is due: the attempt before it was not answered within the delay. It
// counts once for each n. It returns the address of the attempt's backend if that has been silent
// for reportedAfter, and "" otherwise. It may be called for a nil record.
func (r *Record) NoteLate(n int, now time.Time, delay time.Duration) (silent string) {
	if r == nil {
		return ""
	}
	r.Lock()
	defer r.Unlock()
	if n <= int(r.late) {
		return ""
	}
	r.late = int32(n)
	b := r.lastHedge
	if n == 1 {
		b = r.answering()
	}
	if b == nil || !b.Late(now, delay) { // nil: it has not been picked
		return ""
	}
	return b.name
}

// answering returns the backend of the primary, or of its last retry by gRPC.
func (r *Record) answering() *Backend { return cmp.Or(r.retried.Load(), r.primary.Load()) }

// HedgeAnswered records that the hedge was answered, a stream with its first message. It may be called for
// a nil record.
func (r *Record) HedgeAnswered(h *Hedge) {
	if r == nil {
		return
	}
	r.Lock()
	b := h.at
	r.Unlock()
	if b != nil {
		b.Answered()
	}
}

const (
	// probeEvery is the shortest interval of probes, which are primaries on a silent connection. A
	// probe that is not answered costs a hedge, so the interval grows to a tenth of the silence, at
	// most maxProbeEvery.
	probeEvery    = 100 * time.Millisecond
	maxProbeEvery = 5 * time.Second

	// The hedges of patient probes are due after twice the delay and a hundredth of the silence, so
	// that a backend that is only slow can answer. A probe is patient when the silence has lasted
	// patientFrom, and then four times as long, or maxPatientEvery longer.
	patientFrom     = time.Second
	maxPatientEvery = time.Minute
	maxPatientWait  = 500 * time.Millisecond

	// A primary that cannot be hedged is a probe only if no other has been picked there for
	// unhedgedFrom.
	unhedgedFrom = time.Minute

	// After an answer to a patient probe, the connection cannot be silent for trust times the
	// latency.
	trust    = 50
	maxTrust = time.Minute
)

// probe is a primary on a silent connection.
type probe struct {
	of      *silence
	patient bool
	lasted  time.Duration // length of the silence when the probe was sent
	waits   time.Duration // until its hedge; 0: the usual delay, or unknown. Guarded by the record's lock.
}

// Probe reports whether the primary of r may use this connection: always if the connection is not
// silent, and otherwise if a probe is due. r is nil for a primary that cannot be hedged; one with a
// request that no hedge could send is treated alike.
func (b *Backend) Probe(now time.Time, r *Record) bool {
	s := b.silence()
	if s == nil {
		return true
	}
	if r != nil && r.replayable != nil && !r.replayable(r.request) {
		r = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent {
		return true
	}
	if r != nil {
		s.hedged = now
	}
	if now.Before(s.probe) || r == nil && now.Before(s.hedged.Add(unhedgedFrom)) {
		return false
	}
	p := &probe{of: s, lasted: now.Sub(s.first), patient: !now.Before(s.nextPatient)}
	s.probe = now.Add(min(max(p.lasted/10, probeEvery), maxProbeEvery))
	if r == nil {
		return true
	}
	if p.patient {
		s.nextPatient = now.Add(min(3*p.lasted, maxPatientEvery))
	}
	r.probe.Store(p)
	return true
}

// PatientDelay returns the delay of the primary's hedge, up to limit, if the primary is a patient
// probe, and 0 otherwise. It returns the same each time. It may be called for a nil record.
func (r *Record) PatientDelay(delay, limit time.Duration) time.Duration {
	if r == nil || r.probe.Load() == nil {
		return 0
	}
	r.Lock()
	defer r.Unlock()
	p := r.probe.Load()
	s := p.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent || p.waits > 0 {
		return p.waits
	}
	wait := min(2*s.took, 2*delay+maxPatientWait)
	if p.patient {
		wait = max(wait, 2*delay+min(p.lasted/100, maxPatientWait))
	}
	if wait = min(wait, limit); wait > delay {
		s.took, p.waits = s.took/2, wait
	}
	return p.waits
}

// Ended records that the primary was answered, a stream with its first message, or failed, and the
// age of the call at that time.
func (r *Record) Ended(age time.Duration, answered bool) {
	b := r.answering()
	if b == nil {
		return
	}
	if b.backends.known.Load().ended(b, age, answered); !answered {
		return
	}
	if p := r.probe.Load(); p != nil {
		r.Lock()
		waits := p.waits
		r.Unlock()
		if waits > 0 { // patient; the latency of other calls may be normal for their methods on any backend
			s := p.of
			s.mu.Lock()
			s.took = min(age, waits)
			s.trusted = time.Now().Add(min(trust*s.took, maxTrust))
			s.mu.Unlock()
		}
	}
	b.Answered()
}
