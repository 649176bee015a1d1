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

// Backend is one connection to a backend. Two of them are the same backend if they have the same addresses, and the same
// number where each address has several connections.
type Backend struct {
	SubConn balancer.SubConn // as the policy's parent knows it

	policy  *Policy
	address string
	name    string // the first of the addresses, for people
	number  int    // of the connection, if its address has several

	silence silence
}

// NewBackend returns the backend behind sc, which connects to one of the addresses. number is that of the connection where
// each address has several, 0 for the first.
func (p *Policy) NewBackend(sc balancer.SubConn, addresses []resolver.Address, number int) *Backend {
	// The key has no attributes, because these may differ between two entries for one backend. It has the server name, because
	// one address may serve several names, as a proxy's does.
	var key strings.Builder
	for _, a := range addresses {
		key.WriteString(a.Addr)
		key.WriteByte(0)
		key.WriteString(a.ServerName)
		key.WriteByte(0)
	}
	b := &Backend{SubConn: sc, policy: p, address: key.String(), number: number}
	if len(addresses) > 0 {
		b.name = addresses[0].Addr
	}
	return b
}

func (b *Backend) same(other *Backend) bool {
	return other != nil && (b == other || b.number == other.number && b.address == other.address)
}

func (b *Backend) sameAddress(other *Backend) bool {
	return other != nil && (b == other || b.address == other.address)
}

// Policy is one load-balancing policy of package balancer, in use on a connection, and its ready backends.
type Policy struct {
	target     string
	ready      atomic.Pointer[[]*Backend]
	silenceOff atomic.Bool  // no connection is ever silent
	moved      atomic.Int64 // primaries that were sent elsewhere
}

// policies are all policies in use, by the target of their connection. Connections may share a target, and one connection
// may have several policies in its tree.
var policies struct {
	count    atomic.Int64
	mu       sync.Mutex
	byTarget map[string]map[*Policy]struct{}
}

// Live reports whether any connection of this process has a policy. If none has, calls need no record.
func Live() bool { return policies.count.Load() > 0 }

// Enter registers a policy of a connection with the given target. Leave must be called when the policy closes.
func Enter(target string) *Policy {
	p := &Policy{target: target}
	p.Show(nil)
	policies.mu.Lock()
	defer policies.mu.Unlock()
	if policies.byTarget == nil {
		policies.byTarget = map[string]map[*Policy]struct{}{}
	}
	if policies.byTarget[target] == nil {
		policies.byTarget[target] = map[*Policy]struct{}{}
	}
	policies.byTarget[target][p] = struct{}{}
	policies.count.Add(1)
	return p
}

// Leave unregisters a policy. It must be called once.
func (p *Policy) Leave() {
	p.Show(nil)
	policies.mu.Lock()
	defer policies.mu.Unlock()
	delete(policies.byTarget[p.target], p)
	if len(policies.byTarget[p.target]) == 0 {
		delete(policies.byTarget, p.target)
	}
	policies.count.Add(-1)
}

// Target is the target of the policy's connection.
func (p *Policy) Target() string { return p.target }

// Show sets the backends that are ready now. The slice must not be changed afterwards.
func (p *Policy) Show(ready []*Backend) { p.ready.Store(&ready) }

// Ready returns the backends that are ready. The slice must not be changed.
func (p *Policy) Ready() []*Backend { return *p.ready.Load() }

// Census is what is ready on the connections to some targets.
type Census struct {
	Backends    int                   // different addresses
	Connections int                   // the same, counting each connection where an address has several
	Silent      []stats.SilentBackend // one for each address
	Moved       int64                 // primaries that were sent past a silent connection
}

// Count returns what is ready on the connections to the targets; nothing without a policy. Silent is in the order of Since.
func Count(targets ...string) Census {
	type connection struct {
		address string
		number  int
	}
	var c Census
	addresses, connections := map[string]struct{}{}, map[connection]struct{}{}
	policies.mu.Lock()
	defer policies.mu.Unlock()
	for _, target := range targets {
		for p := range policies.byTarget[target] {
			c.Moved += p.moved.Load()
			for _, b := range p.Ready() {
				addresses[b.address] = struct{}{}
				connections[connection{b.address, b.number}] = struct{}{}
				if since, silent := b.SilentSince(); silent {
					c.silent(b.name, since)
				}
			}
		}
	}
	c.Backends, c.Connections = len(addresses), len(connections)
	slices.SortFunc(c.Silent, func(a, b stats.SilentBackend) int { return a.Since.Compare(b.Since) })
	return c
}

// silent adds a connection that is silent.
func (c *Census) silent(address string, since time.Time) {
	i := slices.IndexFunc(c.Silent, func(s stats.SilentBackend) bool { return s.Address == address })
	if i < 0 {
		c.Silent = append(c.Silent, stats.SilentBackend{Address: address, Connections: 1, Since: since})
		return
	}
	s := &c.Silent[i]
	s.Connections++
	if since.Before(s.Since) {
		s.Since = since
	}
}
