package place

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

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
