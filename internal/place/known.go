package place

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	uatomic "go.uber.org/atomic"

	"github.com/grpchedge/hedge/internal/sketch"
)

// Known is the knowledge that the policies of a scheduler's target share about their backends. The
// connections of one policy to one address share nothing: each may have a path of its own, and the
// silence of one shows nothing about the others. A policy has a Known of its own until a scheduler
// makes a call through it.
type Known struct {
	movedShare

	finding  sync.Mutex
	silences map[id]weak.Pointer[silence] // each lives as long as a connection has it; nil: nothing is shared
}

func NewKnown() *Known {
	return &Known{movedShare: movedShare{share: firstMoves}, silences: map[id]weak.Pointer[silence]{}}
}

// of returns the silence of the backends with an id.
func (k *Known) of(backend id) *silence {
	k.finding.Lock()
	defer k.finding.Unlock()
	if s := k.silences[backend].Value(); s != nil {
		return s
	}
	maps.DeleteFunc(k.silences, func(_ id, s weak.Pointer[silence]) bool { return s.Value() == nil })
	s := new(silence)
	k.silences[backend] = weak.Make(s)
	return s
}

// join makes a policy share the knowledge k, which may be nil.
func (r *Backends) join(k *Known) {
	if k == nil || r.known.Load() == k {
		return
	}
	r.joining.Lock()
	defer r.joining.Unlock()
	r.known.Store(k)
	r.share(r.Ready())
}

// share lets the backends share the silences of their ids. joining must be held.
func (r *Backends) share(backends []*Backend) {
	k := r.known.Load()
	if k.silences == nil {
		return
	}
	for _, b := range backends {
		b.shared.Store(k.of(b.id))
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

// movedShare is the share of the primaries of silent connections that may be moved: see firstMoves.
type movedShare struct {
	usual   uatomic.Float64 // mean logarithm of latencies while no primaries are moved; first, for alignment on 32 bits
	known   atomic.Int64    // calls in usual
	metered atomic.Int32    // calls that still change the share
	mu      sync.Mutex
	share   float64
	recent  float64      // mean logarithm of the last latencies while primaries are moved
	draws   sketch.Draws // of moves
}

// moves reports whether the next primary of a silent connection may be moved.
func (m *movedShare) moves() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.metered.Swap(meteredCalls) <= 0 {
		m.recent = m.usual.Load()
	}
	return m.draws.Next() < m.share
}

// ended updates the share by the end of a primary on a connection that is not silent, or, while no
// primaries are moved, the usual latency. Concurrent calls may overwrite one another's updates.
func (m *movedShare) ended(b *Backend, took time.Duration, answered bool) {
	log := math.Log(float64(max(took, 1)))
	if m.metered.Load() <= 0 {
		if answered {
			n := min(m.known.Add(1), usually)
			m.usual.Store(m.usual.Load() + (log-m.usual.Load())/float64(n))
		}
		return
	}
	if b.Silent() {
		return
	}
	m.metered.Add(-1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !answered {
		m.share = max(m.share*failed, minMoves)
		return
	}
	if m.recent += (log - m.recent) / recently; m.recent > m.usual.Load()+slower {
		m.share = max(m.share*slow, minMoves)
	} else {
		m.share = min(m.share+quick, 1)
	}
}
