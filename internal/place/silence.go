package place

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// silentFrom is the number of late calls without an answer in between that make a connection silent.
const silentFrom = 2

// silence is what the calls of one connection say about whether it still answers. A connection is silent from its second
// late call without an answer in between to its next answer. A primary's pick reads one word of it.
type silence struct {
	late atomic.Int32 // late calls since the last answer

	mu      sync.Mutex // guards the fields below and changes of late
	silent  bool
	first   time.Time // when the first of the late calls was noticed
	told    time.Time // when a call was last late in a silence worth telling; zero: never
	probe   time.Time // when the next primary may go there
	patient time.Time // when the next of them may be patient

	// The time that answers there take, if it is more than the usual delay. It is halved after each patient probe.
	took    time.Duration
	trusted time.Time // until then late calls mean nothing, because the connection is slow
}

// Suspect reports whether a call to the backend is late, and nothing was answered since. It is one atomic load.
func (s *silence) Suspect() bool { return s.late.Load() != 0 }

// Late says that a call there has not answered within the delay after which calls of its kind are hedged. It reports whether the
// connection has been silent for a while.
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
		b.first, b.told = now, time.Time{}
	case !b.silent && n >= silentFrom && now.Sub(b.first) >= delay/2: // those that are late at the same moment are one sign
		b.silent, b.probe, b.patient = true, now, b.first.Add(patientFrom)
	}
	if !b.silent || n <= silentFrom || now.Sub(b.first) < worthTelling {
		return false
	}
	b.told = now
	return true
}

// A silence is worth telling, in the log, Methods and metrics alike, once a third call is late
// worthTelling after the first. It no longer is once no call was late for forgotten. Most silences are
// shorter, because two stragglers in a row begin one. While calls are made, some are probes.
const (
	worthTelling = 10 * time.Second
	forgotten    = time.Minute
)

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
	if s.late.Load() < silentFrom {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// worthTelling reports whether a silence is worth telling, and when its first late call was noticed.
func (s *silence) worthTelling(now time.Time) (since time.Time, worth bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, s.silent && !s.told.IsZero() && now.Sub(s.told) < forgotten
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

// Nobody knows what load the other backends bear. So a share of the primaries of silent connections is sent there, from minMoves
// to 1. Each answer there adds to it, or takes from it if calls take much longer than before any were moved. What is late says less: it
// goes by a delay that follows what calls take. Each failure halves the share.
const (
	firstMoves, minMoves = 1.0 / 4, 1.0 / 64
	quick                = 1.0 / 16 // is added
	slow, failed         = 7.0 / 8, 1.0 / 2
	metered              = 64 // calls are asked about after each that could be moved; others need no lock

	slower   = 2 * math.Ln2 // than before any were moved, as a mean of logarithms, as methods differ: four times as long
	usually  = 2048         // calls that the mean before is of
	recently = 32           // and the mean now
)

// Moves reports whether the next primary of a silent connection may be sent elsewhere.
func (r *Roster) Moves() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.metered.Swap(metered) <= 0 {
		r.recent = r.usual.Load()
	}
	return r.draws.Next() < r.share
}

func (r *Roster) Moved() { r.moved.Add(1) }

// meter changes the share by what became of a primary there, if the connection is not silent, and notes what calls take while none are
// moved. Calls that end at the same time may overwrite what each other noted.
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

// Late says that hedge n is due: the attempt before it, the primary for 1, has not answered within the delay. Each attempt
// counts once, however often its hedge is considered. It may be called for a nil record. It returns the address of a backend that has
// been silent for a while; "" if none has.
func (r *Record) Late(n int, now time.Time, delay time.Duration) (silent string) {
	if r == nil {
		return ""
	}
	r.Lock()
	defer r.Unlock()
	if n <= int(r.late.Load()) {
		return ""
	}
	r.late.Store(int32(n))
	b := r.lastHedge
	if n == 1 {
		b = r.answering()
	}
	if b == nil || !b.Late(now, delay) { // nil: it has not been picked
		return ""
	}
	return b.name
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
	// that does not costs a hedge. So the next one comes after a tenth of the silence, maxProbeEvery at most.
	probeEvery    = 100 * time.Millisecond
	maxProbeEvery = 5 * time.Second

	// So that a backend that is only slower than others can answer, some probes are patient: the first one when the silence has
	// lasted patientFrom, the next ones each time that it has lasted four times as long, or maxPatientEvery longer. Their hedges
	// are due after twice the delay and a hundredth of the silence.
	patientFrom     = time.Second
	maxPatientEvery = time.Minute
	maxPatientWait  = 500 * time.Millisecond

	// After a patient probe was answered, the connection is not silent for trust times the probe's latency.
	trust    = 50
	maxTrust = time.Minute
)

// probe is a primary that goes to a silent connection.
type probe struct {
	patient bool
	lasted  time.Duration // the silence, when the probe was sent
	waits   time.Duration // until its hedge; 0: the usual delay, or not known yet. Guarded by the record's lock.
}

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

// PatientDelay returns the delay of the primary's hedge, up to limit, if the primary is a patient probe, and 0 if the usual
// delay is right. It may be called for a nil record, and returns the same each time.
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

// Ended says whether the primary has answered, with the first message if it is a stream, or failed, and at which age of the call. It
// may be called for a nil record.
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
		if waits > 0 { // it was patient; other calls do not say how slow a backend is: their methods may take longer anywhere
			b.mu.Lock()
			b.took = min(age, waits)
			b.trusted = time.Now().Add(min(trust*b.took, maxTrust))
			b.mu.Unlock()
		}
	}
	b.Answered()
}
