// Package registry keeps the state of every target and method: what was learned, what the features keep, what was counted, and the
// settings in force. It bounds how many methods there are.
package registry

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/internal/feature/gate"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/snapshot"
)

// Registry is what a hedge.Scheduler holds. Its state is per target and, under a target, per full method. All its methods may be
// called concurrently. It runs no goroutine of its own and needs no closing. A nil *Registry knows nothing.
type Registry struct {
	sweep atomic.Duration // time since epoch of the next search for idle methods; the first field, for alignment on 32-bit machines

	config atomic.Pointer[settings.Config] // in force for calls that begin now
	handle *Handle
	pace   learn.Pace
	epoch  time.Time
	pause  gate.Pause

	remembers atomic.Bool // histories are kept

	targets sync.Map // name → *Target
	names   sync.Map // a connection's target → its name, with WithTargetName; empty without it

	mu       sync.Mutex // serialises changes of targets, methods and names
	named    int        // in names
	entries  entries
	departed Counters
}

// Handle holds a registry. A hedge.Scheduler is one, of another name and with other methods.
type Handle struct{ registry *Registry }

// NewHandle returns the handle of a registry that knows only what the snapshots of its configuration know. It keeps the registry from being
// collected: interceptors hold the registry alone, and telemetry watches the scheduler.
func NewHandle(c settings.Config) (*Handle, error) {
	known, err := snapshot.Read(c.Snapshots...)
	if err != nil {
		return nil, fmt.Errorf("hedge: WithSnapshot: %w", err)
	}
	c.Snapshots = nil // methods have it now
	r := &Registry{epoch: time.Now()}
	r.handle = &Handle{r}
	r.config.Store(&c)
	r.takeOver(known)
	r.sweep.Store(sweepEvery)
	r.pause.Read()
	return r.handle, nil
}

// Of returns the registry of a scheduler; nil if the scheduler is nil or zero.
func Of[Scheduler ~struct{ registry *Registry }](s *Scheduler) *Registry {
	if s == nil {
		return nil
	}
	return Handle(*s).registry
}

// Config returns what the options say; the defaults for a nil registry.
func (r *Registry) Config() settings.Config {
	if r == nil {
		return settings.DefaultConfig()
	}
	return *r.config.Load()
}

// Pause returns what pauses hedging. What a nil registry returns pauses nothing.
func (r *Registry) Pause() *gate.Pause {
	if r == nil {
		return new(gate.Pause)
	}
	return &r.pause
}

// Latency returns the quantile q, 0 < q < 1, of what the primaries of a method took within the window. It
// returns false if nothing is known of the method. The target is the connection's, or its name by WithTargetName.
func (r *Registry) Latency(target, method string, q float64) (time.Duration, bool) {
	m := r.targetNamed(target).find(method)
	if m == nil {
		return 0, false
	}
	return m.Learner.Snapshot(time.Now()).Quantile(q)
}
