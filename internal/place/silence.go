package place

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// silentFrom is the number of late calls, with no answer between them, that makes a connection
// silent.
const silentFrom = 2

// silence is the state that shows whether a connection still answers: see docs/other-backends.md. A
// primary's pick reads two words of it.
type silence struct {
	late atomic.Int32 // late calls since the last answer

	// Of hedges since the last answer, in nanoseconds since epoch: see mute.
	firstHedge atomic.Int64 // 0: none
	nextHedge  atomic.Int64

	mu       sync.Mutex // guards the fields below and changes of late
	silent   bool
	first    time.Time // when the first of the late calls was noticed
	lastLate time.Time // when a call was last late in a reported silence; zero: never
	probe    time.Time // when the next primary may be a probe
	hedged   time.Time // when the connection was last picked for a primary that may be hedged
	patient  time.Time // when the next probe may be patient

	took    time.Duration // latency of the last patient probe that was answered; halved by each patient probe
	trusted time.Time     // until then late calls do not count, because the connection is slow
}

// Suspect reports whether the connection has had a late call or a hedge, and no answer since.
func (s *silence) Suspect() bool { return s.late.Load() != 0 || s.firstHedge.Load() != 0 }

// A connection that only hedges use may be dead without notice. If it has not answered for muteFrom
// after a hedge, further hedges are probes: one at once, then one each time the silence has
// doubled, or has lasted maxMuteProbe longer.
const (
	muteFrom     = time.Second
	maxMuteProbe = 30 * time.Second
)

// epoch is the origin of atomic times, which a wall clock that is set back does not change.
var epoch = time.Now()

// mute reports whether hedges should go elsewhere, because hedges on this connection were not
// answered.
func (s *silence) mute(now time.Time) bool {
	first, at := s.firstHedge.Load(), int64(now.Sub(epoch))
	return first != 0 && at >= first+int64(muteFrom) && at < s.nextHedge.Load()
}

// asked notes that a hedge is sent to the connection.
func (s *silence) asked(now time.Time) {
	at := int64(now.Sub(epoch))
	if s.firstHedge.CompareAndSwap(0, at) {
		s.nextHedge.Store(at)
	} else if lasted := at - s.firstHedge.Load(); lasted >= int64(muteFrom) && at >= s.nextHedge.Load() {
		s.nextHedge.Store(at + min(lasted, int64(maxMuteProbe)))
	}
}

// Late records a call that was not answered within its delay. It reports whether the connection has
// been silent for reportedAfter.
func (b *Backend) Late(now time.Time, delay time.Duration) (silent bool) {
	if b.roster.silenceOff.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.trusted) {
		return false
	}
	n := b.late.Add(1)
	switch {
	case n == 1:
		b.first, b.lastLate = now, time.Time{}
	case !b.silent && n >= silentFrom && now.Sub(b.first) >= delay/2: // calls that are late together count once
		b.silent, b.probe, b.hedged, b.patient = true, now, now, b.first.Add(patientFrom)
	}
	if !b.silent || n <= silentFrom || now.Sub(b.first) < reportedAfter {
		return false
	}
	b.lastLate = now
	return true
}

// A silence is reported once a third call is late reportedAfter after the first, and no longer once
// no call was late for forgotten. Most are shorter, because two stragglers in a row begin one.
const (
	reportedAfter = 10 * time.Second
	forgotten     = time.Minute
)

// Answered records an answer of any call.
func (s *silence) Answered() {
	if !s.Suspect() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late.Store(0)
	s.firstHedge.Store(0)
	s.silent = false
}

func (s *silence) Silent() bool {
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
func (r *Roster) SetSilence(on bool) {
	if r.silenceOff.Swap(!on) || on {
		return
	}
	for _, b := range r.Ready() {
		b.Answered()
	}
}

// The other backends may lack capacity, so only a share of a silent connection's primaries is moved
// to them, from minMoves to 1. An answer raises the share, or lowers it once latency exceeds its
// pre-move level by slower. A failure halves the share.
const (
	firstMoves, minMoves = 1.0 / 4, 1.0 / 64
	quick                = 1.0 / 16 // is added
	slow, failed         = 7.0 / 8, 1.0 / 2
	meteredCalls         = 64 // calls change the share after each one that could be moved; others need no lock

	slower   = 2 * math.Ln2 // a factor of four; a mean of logarithms, because methods differ
	usually  = 2048         // calls in the mean before primaries are moved
	recently = 32           // calls in the mean while they are moved
)

// Moves reports whether the next primary of a silent connection may be moved.
func (r *Roster) Moves() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.metered.Swap(meteredCalls) <= 0 {
		r.recent = r.usual.Load()
	}
	return r.draws.Next() < r.share
}

func (r *Roster) Moved() { r.moved.Add(1) }

// meter updates the share by the end of a primary on a connection that is not silent, or, while no
// primaries are moved, the usual latency. Concurrent calls may overwrite one another's updates.
func (b *Backend) meter(took time.Duration, answered bool) {
	r, log := b.roster, math.Log(float64(max(took, 1)))
	if r.metered.Load() <= 0 {
		if answered {
			n := min(r.known.Add(1), usually)
			r.usual.Store(r.usual.Load() + (log-r.usual.Load())/float64(n))
		}
		return
	}
	if b.Silent() {
		return
	}
	r.metered.Add(-1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !answered {
		r.share = max(r.share*failed, minMoves)
		return
	}
	if r.recent += (log - r.recent) / recently; r.recent > r.usual.Load()+slower {
		r.share = max(r.share*slow, minMoves)
	} else {
		r.share = min(r.share+quick, 1)
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

// Answered records that the hedge was answered, a stream with its first message.
func (h *Hedge) Answered() {
	h.record.Lock()
	b := h.at
	h.record.Unlock()
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
	patient bool
	lasted  time.Duration // length of the silence when the probe was sent
	waits   time.Duration // until its hedge; 0: the usual delay, or unknown. Guarded by the record's lock.
}

// Probe reports whether the primary of r may use this connection: always if the connection is not
// silent, and otherwise if a probe is due. r is nil for a primary that cannot be hedged; one with a
// request that no hedge could send is treated alike.
func (s *silence) Probe(now time.Time, r *Record) bool {
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
	p := &probe{lasted: now.Sub(s.first), patient: !now.Before(s.patient)}
	s.probe = now.Add(min(max(p.lasted/10, probeEvery), maxProbeEvery))
	if r == nil {
		return true
	}
	if p.patient {
		s.patient = now.Add(min(3*p.lasted, maxPatientEvery))
	}
	r.probe.Store(p)
	return true
}

// PatientDelay returns the delay of the primary's hedge, up to limit, if the primary is a patient
// probe, and 0 otherwise. It returns the same each time. It may be called for a nil record.
func (r *Record) PatientDelay(delay, limit time.Duration) time.Duration {
	if r == nil || r.probe.Load() == nil || r.answering() == nil {
		return 0
	}
	r.Lock()
	defer r.Unlock()
	p, b := r.probe.Load(), r.answering()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.silent || p.waits > 0 {
		return p.waits
	}
	wait := min(2*b.took, 2*delay+maxPatientWait)
	if p.patient {
		wait = max(wait, 2*delay+min(p.lasted/100, maxPatientWait))
	}
	if wait = min(wait, limit); wait > delay {
		b.took, p.waits = b.took/2, wait
	}
	return p.waits
}

// Ended records that the primary was answered, a stream with its first message, or failed, and the
// age of the call at that time. It may be called for a nil record.
func (r *Record) Ended(age time.Duration, answered bool) {
	if r == nil {
		return
	}
	b := r.answering()
	if b == nil {
		return
	}
	if b.meter(age, answered); !answered {
		return
	}
	if p := r.probe.Load(); p != nil {
		r.Lock()
		waits := p.waits
		r.Unlock()
		if waits > 0 { // patient; the latency of other calls may be normal for their methods on any backend
			b.mu.Lock()
			b.took = min(age, waits)
			b.trusted = time.Now().Add(min(trust*b.took, maxTrust))
			b.mu.Unlock()
		}
	}
	b.Answered()
}
