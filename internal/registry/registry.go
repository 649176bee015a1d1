// Package registry keeps the state of every target and method: the learners, the features, the
// counters, and the settings in force. It bounds the number of methods.
package registry

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/snapshot"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Registry is the state of a hedge.Scheduler, per target and, under a target, per full method. It
// is safe for concurrent use. It runs no goroutine and needs no closing. A nil *Registry is empty.
type Registry struct {
	sweep atomic.Duration // since epoch: the next search for idle methods; the first field, for alignment on 32-bit

	config atomic.Pointer[settings.Config] // in force for calls that begin now
	handle *Handle
	pace   trigger.Pace
	epoch  time.Time
	pause  Pause

	remembers atomic.Bool // histories are kept

	targets sync.Map // name → *Target
	names   sync.Map // a connection's target → its name, with WithTargetName; empty without it

	mu       sync.Mutex // serialises changes of targets, methods and names
	named    int        // in names
	entries  entries
	departed Counters
}

// Handle holds a registry. It is the underlying type of hedge.Scheduler.
type Handle struct{ registry *Registry }

// NewHandle returns the handle of a new registry, with the knowledge of the configuration's
// snapshots. The registry keeps its handle from being collected: interceptors hold the registry
// alone, and telemetry watches the scheduler.
func NewHandle(c settings.Config) (*Handle, error) {
	known, err := snapshot.Read(c.Snapshots...)
	if err != nil {
		return nil, fmt.Errorf("hedge: WithSnapshot: %w", err)
	}
	c.Snapshots = nil // the methods have it
	r := &Registry{epoch: time.Now()}
	r.handle = &Handle{r}
	r.config.Store(&c)
	r.restore(known)
	r.sweep.Store(sweepEvery)
	r.pause.readSwitch()
	return r.handle, nil
}

// Of returns the registry of a scheduler; nil if the scheduler is nil or zero.
func Of[Scheduler ~struct{ registry *Registry }](s *Scheduler) *Registry {
	if s == nil {
		return nil
	}
	return Handle(*s).registry
}

// Config returns the configuration in force; the defaults for a nil registry.
func (r *Registry) Config() settings.Config {
	if r == nil {
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
