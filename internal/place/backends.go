package place

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	uatomic "go.uber.org/atomic"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Backend is one connection to a backend. Two Backends are the same if they have the same id.
type Backend struct {
	SubConn balancer.SubConn // as the policy's parent knows it

	backends *Backends
	id
	name  string       // the first of the addresses, for reports
	Fixed atomic.Int32 // searches in a row in which the child returned this connection alone

	own    silence
	shared atomic.Pointer[silence] // by all with its id; own until the policy has joined a Known

	// Of hedges since the last answer, in nanoseconds since origin: see mute.
	firstHedge atomic.Int64 // 0: none
	nextHedge  atomic.Int64
}

type id struct {
	address string // all addresses of the connection, each with its server name
	number  int    // of the connection, if the address has several
}

// NewBackend returns the backend of sc, which connects to one of the addresses.
func (r *Backends) NewBackend(sc balancer.SubConn, addresses []resolver.Address, number int) *Backend {
	// Without attributes: two entries for one backend may have different ones.
	var key strings.Builder
	for _, a := range addresses {
		key.WriteString(a.Addr + "\x00" + a.ServerName + "\x00")
	}
	b := &Backend{SubConn: sc, backends: r, id: id{key.String(), number}}
	b.shared.Store(&b.own)
	if len(addresses) > 0 {
		b.name = addresses[0].Addr
	}
	return b
}

func (b *Backend) same(other *Backend) bool { return other != nil && b.id == other.id }

// Number returns the number of the connection, if its address has several.
func (b *Backend) Number() int { return b.number }

// Backends lists the ready backends of one load-balancing policy of package balancer that is in use.
type Backends struct {
	Target string // of the connection

	ready      atomic.Pointer[[]*Backend]
	silenceOff atomic.Bool  // no connection is ever silent
	moved      atomic.Int64 // primaries that were moved past a silent connection

	joining sync.Mutex // guards changes of known
	known   atomic.Pointer[Known]
}

// inUse has the Backends in use, by target. Connections may share a target, and a connection may
// have several policies.
var inUse = struct {
	count    atomic.Int64
	mu       sync.Mutex
	byTarget map[string][]*Backends
}{byTarget: map[string][]*Backends{}}

// Live reports whether any connection of this process has a policy. Without a policy, calls need no
// record.
func Live() bool { return inUse.count.Load() > 0 }

// Enter registers a policy of a connection with the given target. Leave unregisters it, once.
func Enter(target string) *Backends {
	r := &Backends{Target: target}
	r.known.Store(&Known{movedShare: movedShare{share: firstMoves}})
	r.Show(nil)
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	inUse.byTarget[target] = append(inUse.byTarget[target], r)
	inUse.count.Add(1)
	return r
}

func (r *Backends) Leave() {
	r.Show(nil)
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	left := slices.DeleteFunc(inUse.byTarget[r.Target], func(o *Backends) bool { return o == r })
	if inUse.byTarget[r.Target] = left; len(left) == 0 {
		delete(inUse.byTarget, r.Target)
	}
	inUse.count.Add(-1)
}

// Show sets the ready backends. The slice must not be changed afterwards.
func (r *Backends) Show(ready []*Backend) {
	r.joining.Lock()
	defer r.joining.Unlock()
	r.share(ready)
	r.ready.Store(&ready)
}

// Ready returns the ready backends. The slice must not be changed.
func (r *Backends) Ready() []*Backend { return *r.ready.Load() }

// Moves reports whether the next primary of a silent connection may be moved.
func (r *Backends) Moves() bool { return r.known.Load().moves() }

func (r *Backends) Moved() { r.moved.Add(1) }

// BestRank returns the best rank of the ready connections for a hedge of rec's call, or for a
// primary if rec is nil; have if none is better. The lock of rec must be held.
func (r *Backends) BestRank(rec *Record, have int, now time.Time) int {
	for _, b := range r.Ready() {
		if have == 0 {
			break
		}
		have = min(have, rec.Rank(b, now))
	}
	return have
}

// Count returns the ready and silent backends of the connections to the targets. Silent is sorted
// by Since.
func Count(targets ...string) stats.Backends {
	var c stats.Backends
	now := time.Now()
	addresses, connections := map[string]struct{}{}, map[id]struct{}{}
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	for _, target := range targets {
		for _, r := range inUse.byTarget[target] {
			c.Moved += r.moved.Load()
			for _, b := range r.Ready() {
				addresses[b.address] = struct{}{}
				connections[b.id] = struct{}{}
				since, reported := b.shared.Load().reported(now)
				if !reported {
					since, reported = b.own.reported(now)
				}
				if !reported {
					continue
				}
				i := slices.IndexFunc(c.Silent, func(s stats.SilentBackend) bool { return s.Address == b.name })
				if i < 0 {
					i, c.Silent = len(c.Silent), append(c.Silent, stats.SilentBackend{Address: b.name, Since: since})
				}
				s := &c.Silent[i]
				s.Connections++
				if since.Before(s.Since) {
					s.Since = since
				}
			}
		}
	}
	c.Ready, c.Connections = len(addresses), len(connections)
	slices.SortFunc(c.Silent, func(a, b stats.SilentBackend) int { return a.Since.Compare(b.Since) })
	return c
}

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
