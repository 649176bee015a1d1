// Package registry keeps the state of every target and method: the learners, the features, the
// counters, and the settings in force. It bounds the number of methods.
package registry

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Registry is the state of a hedge.Scheduler, per target and, under a target, per full method. It
// is safe for concurrent use. It runs no goroutine and needs no closing. A nil *Registry and the zero
// Registry are empty. It is the underlying type of hedge.Scheduler.
type Registry struct {
	sweep atomic.Duration // since epoch: the next search for idle methods; the first field, for alignment on 32-bit

	config atomic.Pointer[settings.Config] // in force for calls that begin now
	pace   trigger.Pace
	epoch  time.Time
	pause  Pause

	remembers atomic.Bool // histories are kept

	targets sync.Map // name → *Target
	names   sync.Map // a connection's target → its name, with WithTargetName; empty without it

	mu       sync.Mutex // serialises changes of targets, methods and names
	named    int        // in names
	methods  []*Method  // of all targets
	victims  []*Method  // to remove next: see leastUsed
	forgot   bool       // a method was removed
	departed Counters
}

// New returns a registry with the knowledge of the configuration's snapshots.
func New(c settings.Config) (*Registry, error) {
	snapshots := c.Snapshots
	c.Snapshots = nil
	r := &Registry{epoch: time.Now()}
	r.config.Store(&c)
	if err := r.restore(snapshots); err != nil {
		return nil, fmt.Errorf("hedge: WithSnapshot: %w", err)
	}
	r.sweep.Store(sweepEvery)
	r.pause.readSwitch()
	return r, nil
}

// Made reports whether New has made the registry. Otherwise no call is hedged.
func (r *Registry) Made() bool { return r != nil && r.config.Load() != nil }

// Config returns the configuration in force; the defaults for an empty registry.
func (r *Registry) Config() settings.Config {
	if !r.Made() {
		return settings.DefaultConfig()
	}
	return *r.config.Load()
}

// PatternOf returns the pattern of the configuration in force that matches a full method name: see
// settings.Config. Unlike Config it copies nothing.
func (r *Registry) PatternOf(fullMethod string) string { return r.config.Load().PatternOf(fullMethod) }

// Pause returns the switch that pauses hedging. The switch of a nil registry has no effect.
func (r *Registry) Pause() *Pause {
	if r == nil {
		return new(Pause)
	}
	return &r.pause
}

// Latency returns the quantile q, 0 < q < 1, of the primaries' latency within the window. ok is
// false for an unknown method. target is the connection's target, or its name by WithTargetName.
func (r *Registry) Latency(target, method string, q float64) (time.Duration, bool) {
	m := r.targetNamed(target).find(method)
	if m == nil {
		return 0, false
	}
	return m.Learner.Snapshot(time.Now()).Quantile(q)
}
