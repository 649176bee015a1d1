package place

import (
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
)

// Backend is one connection to a backend. Two of them are the same backend if they have the same addresses.
type Backend struct {
	SubConn balancer.SubConn // as the policy's parent knows it

	policy  *Policy
	address string
}

// NewBackend returns the backend behind sc, which connects to one of the addresses.
func (p *Policy) NewBackend(sc balancer.SubConn, addresses []resolver.Address) *Backend {
	// The key has no attributes, because these may differ between two entries for one backend. It has the server name, because
	// one address may serve several names, as a proxy's does.
	var key strings.Builder
	for _, a := range addresses {
		key.WriteString(a.Addr)
		key.WriteByte(0)
		key.WriteString(a.ServerName)
		key.WriteByte(0)
	}
	return &Backend{SubConn: sc, policy: p, address: key.String()}
}

func (b *Backend) same(other *Backend) bool {
	return other != nil && (b == other || b.address == other.address)
}

// Policy is one load-balancing policy of package balancer, in use on a connection, and its ready backends.
type Policy struct {
	target string
	ready  atomic.Pointer[[]*Backend]
}

// policies are all policies in use, by the target of their connection. Connections may share a target, and one connection may
// have several policies in its tree.
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

// Backends returns the number of different backends that are ready on the connections to the targets; 0 without a policy.
func Backends(targets ...string) int {
	policies.mu.Lock()
	defer policies.mu.Unlock()
	different := map[string]struct{}{}
	for _, target := range targets {
		for p := range policies.byTarget[target] {
			for _, b := range p.Ready() {
				different[b.address] = struct{}{}
			}
		}
	}
	return len(different)
}
