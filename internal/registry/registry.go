// Package registry keeps the state of every target and method: the learners, the features, the
// counters, and the settings in force. It bounds the number of methods.
package registry

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Registry is the underlying type of hedge.Scheduler: its state, per target and, under a target,
// per full method. A nil *Registry and the zero Registry are empty.
type Registry struct {
	sweep atomic.Duration // since epoch: the next search for idle methods; the first field, for alignment on 32-bit

	config atomic.Pointer[settings.Config] // in force for calls that begin now
	pace   trigger.Pace
	epoch  time.Time
	pause  atomic.String // see Pause

	keepsHistory atomic.Bool // histories are kept

	targets sync.Map // name → *Target
	names   sync.Map // a connection's target → its name, with WithTargetName; empty without it

	mu       sync.Mutex // serializes changes of targets, methods and names
	named    int        // in names
	methods  []*Method  // of all targets
	victims  []*Method  // to remove next: see leastUsed
	forgot   bool       // a method was removed
	departed Counters
}

// New returns a registry with the latencies of the configuration's snapshots. If the environment
// variable BySwitch is set, hedging is paused: in an emergency, any value that is not clearly a no
// must count as a yes.
func New(c settings.Config) (*Registry, error) {
	snapshots := c.Snapshots
	c.Snapshots = nil
	r := &Registry{epoch: time.Now()}
	r.config.Store(&c)
	if err := r.restore(snapshots); err != nil {
		return nil, fmt.Errorf("hedge: WithSnapshot: %w", err)
	}
	r.sweep.Store(sweepEvery)
	value := os.Getenv(BySwitch)
	if yes, err := strconv.ParseBool(value); value != "" && (yes || err != nil) {
		r.pause.Store(BySwitch)
	}
	return r, nil
}

// Made reports whether New has made the registry. Otherwise no call is hedged.
func (r *Registry) Made() bool { return r != nil && r.config.Load() != nil }

// Config returns the configuration in force; the defaults for an empty registry. It must not be
// changed.
func (r *Registry) Config() *settings.Config {
	if !r.Made() {
		c := settings.DefaultConfig()
		return &c
	}
	return r.config.Load()
}

// The reasons why hedging is paused.
const (
	BySwitch = "HEDGE_DISABLED" // the environment variable
	ByPause  = "Pause"
)

// Pause returns the variable that holds the reason for a pause, or "". The variable of a nil
// registry has no effect.
func (r *Registry) Pause() *atomic.String {
	if r == nil {
		return new(atomic.String)
	}
	return &r.pause
}

func (m *Method) Paused() bool { return m.Target.registry.pause.Load() != "" }

// A method without a call for idleAfter is removed: once in sweepEvery, a call searches for them.
const (
	idleAfter  = 15 * time.Minute
	sweepEvery = time.Minute
)

// entry tracks the use of a method, to decide on its removal. Registry.mu guards it.
type entry struct {
	calls int64         // at the last look
	used  time.Duration // the last look that found a call, after the registry's epoch
}

// look notes which methods were called since the last look. r.mu must be held.
func (r *Registry) look(at time.Duration) {
	for _, m := range r.methods {
		if calls := m.Counters.activity(); calls != m.entry.calls {
			m.entry = entry{calls, at}
		}
	}
}

// leastUsed returns the method to remove for a new one: a method with a single call, or else the
// one that was not called for the longest time. It ranks the methods once for several removals.
// r.mu must be held.
func (r *Registry) leastUsed(at time.Duration) *Method {
	for range 2 {
		for len(r.victims) > 0 {
			m := r.victims[0]
			r.victims = r.victims[1:]
			if !m.Counters.left.Load() && m.Counters.activity() == m.entry.calls {
				return m
			}
		}
		r.look(at)
		r.victims = slices.Clone(r.methods)
		slices.SortStableFunc(r.victims, func(a, b *Method) int {
			return cmp.Or(cmp.Compare(min(a.entry.calls, 2), min(b.entry.calls, 2)), cmp.Compare(a.entry.used, b.entry.used))
		})
		r.victims = slices.Clone(r.victims[:1+len(r.victims)/16])
	}
	return r.victims[0] // all others were called since
}

func (r *Registry) removeIdle(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look(at)
	r.victims = nil
	if r.remove(func(m *Method) bool { return at-m.entry.used > idleAfter }) {
		r.forgetNames()
	}
}

// remove removes methods, and targets without a method, and reports whether it removed a
// target. r.mu must be held.
func (r *Registry) remove(unused func(*Method) bool) (target bool) {
	r.methods = slices.DeleteFunc(r.methods, func(m *Method) bool {
		if !unused(m) {
			return false
		}
		r.forgot = true
		m.Target.methods.Delete(m.Name)
		m.Counters.left.Store(true)
		m.Counters.Flush()
		if m.Target.count--; m.Target.count == 0 {
			r.targets.Delete(m.Target.Name)
			target = true
		}
		return true
	})
	return target
}
