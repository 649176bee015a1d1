package place

import (
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
func (b *Backend) Suspect() bool { return b.silence.late.Load() != 0 }

// Late says that a call there has not answered within the delay after which calls of its kind are hedged.
func (b *Backend) Late(now time.Time, delay time.Duration) {
	if b.roster.silenceOff.Load() {
		return
	}
	s := &b.silence
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.trusted) {
		return
	}
	n := s.late.Add(1)
	switch {
	case n == 1:
		s.first = now
	case !s.silent && n >= silentFrom && now.Sub(s.first) >= time.Duration(apart*float64(delay)):
		s.silent, s.probe, s.patient = true, now, s.first.Add(patientFrom)
	}
}

// Answered says that something came back from there, of whatever call.
func (b *Backend) Answered() {
	s := &b.silence
	if s.late.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late.Store(0)
	s.silent = false
}

// Silent reports whether the connection is silent.
func (b *Backend) Silent() bool {
	_, silent := b.silentSince()
	return silent
}

// silentSince reports whether the connection is silent, and when the first late call of the silence was noticed.
func (b *Backend) silentSince() (time.Time, bool) {
	s := &b.silence
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

// Moved counts a primary that was sent past a silent connection.
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
func (r *Record) answering() *Backend {
	if b := r.retried.Load(); b != nil {
		return b
	}
	return r.primary.Load()
}

// Answered says that the hedge has answered, with the first message if it is a stream.
func (h *Hedge) Answered() {
	h.record.Lock()
	b := h.at
	h.record.Unlock()
	if b != nil {
		b.Answered()
	}
}
