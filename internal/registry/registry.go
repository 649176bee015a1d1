// Package registry keeps the state of every target and method: the learners, the features, the
// counters, and the settings in force. It bounds the number of methods.
package registry

import (
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

// Registry is the underlying type of hedge.Scheduler: its state, per target and, under a target,
// per full method. A nil *Registry and the zero Registry are empty.
type Registry struct {
	sweep atomic.Duration // since origin: the next search for idle methods; the first field, for alignment on 32-bit

	config atomic.Pointer[settings.Config] // in force for calls that begin now
	pace   trigger.Pace
	calls  trigger.Calls
	origin time.Time
	pause  atomic.String // see SetPause

	keepsHistory atomic.Bool // histories are kept
	Nested       atomic.Bool // it was reported that a connection is hedged twice

	targets sync.Map // name → *Target
	names   sync.Map // a connection's target → its name, with WithTargetName; empty without it

	count atomic.Int32           // methods; changed under mu
	other atomic.Pointer[Method] // see Other; nil before its first call

	updating   sync.Mutex // serializes Update and Refuse, and guards configured; locked before mu
	configured Configured
	refused    string // the error of the last update, if it was refused; guarded by updating

	mu       sync.Mutex // serializes changes of targets, methods and names; no rule is compared or applied under it
	named    int        // in names
	forgot   bool       // a method was removed
	departed Counters
}

// New returns a registry. If the environment variable bySwitch is set, hedging is paused: in an
// emergency, any value that is not clearly a no must count as a yes.
func New(c settings.Config) *Registry {
	r := &Registry{origin: time.Now()}
	r.configured.At = r.origin
	r.config.Store(&c)
	r.sweep.Store(sweepEvery)
	value := os.Getenv(bySwitch)
	if yes, err := strconv.ParseBool(value); value != "" && (yes || err != nil) {
		r.SetPause(bySwitch)
	}
	return r
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
	bySwitch = "HEDGE_DISABLED" // the environment variable
	ByPause  = "Pause"
)

// Paused returns the reason for a pause, or "".
func (r *Registry) Paused() string {
	if r == nil {
		return ""
	}
	return r.pause.Load()
}

// SetPause pauses hedging for a reason, or resumes it if why is "". It reports a change.
func (r *Registry) SetPause(why string) {
	if !r.Made() || r.pause.Swap(why) == why {
		return
	}
	notice := settings.Notice{Level: slog.LevelInfo, Message: "hedging resumed"}
	if why != "" {
		notice.Message, notice.Attrs = "hedging paused", []any{"by", why}
	}
	settings.Emit(r.Config().Traces, notice)
}

// A method without a call for idleAfter is removed: once in sweepEvery, a call searches for them.
const (
	idleAfter  = 15 * time.Minute
	sweepEvery = time.Minute
)

// entry tracks the use of a method, to decide on its removal. Registry.mu guards it.
type entry struct {
	calls int64         // at the last look
	used  time.Duration // the last look that found a call, after the registry's origin
}

// methods returns the methods of all targets, and Other. r.mu must be held.
func (r *Registry) methods() []*Method {
	all := make([]*Method, 0, r.count.Load())
	r.targets.Range(func(_, t any) bool {
		t.(*Target).methods.Range(func(_, m any) bool {
			all = append(all, m.(*Method))
			return true
		})
		return true
	})
	if other := r.other.Load(); other != nil {
		all = append(all, other)
	}
	return all
}

// Other is the name of the method, and of its target, under which the calls of methods beyond
// MaxMethods count. It is off: rules for these methods are unknown to it.
const Other = "(other)"

func (r *Registry) otherMethod() *Method {
	if m := r.other.Load(); m != nil {
		return m
	}
	c := r.config.Load()
	r.mu.Lock()
	m := r.other.Load()
	if first := m == nil; first {
		t := &Target{Name: Other, registry: r, Backends: place.NewKnown(), Budget: r.newBudget(0)}
		m = r.newMethod(t, Other, offFor(c))
		m.names.Store(&stats.Names{Target: Other, Method: Other})
		r.other.Store(m)
		defer settings.Emit(c.Traces, settings.Notice{Level: slog.LevelWarn, Message: "too many methods", Target: Other,
			Attrs: []any{"limit", c.MaxMethods}})
	}
	r.mu.Unlock()
	return m
}

// offFor returns the settings of Other.
func offFor(c *settings.Config) *settings.Settings {
	s := c.For(Other, Other)
	own := *s.Config
	own.Off = true
	s.Config = &own
	return s
}

// removeIdle looks at all methods, and removes those without a call for idleAfter.
func (r *Registry) removeIdle(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	target := false
	for _, m := range r.methods() {
		if calls := m.Counters.activity(); m == r.other.Load() {
			continue
		} else if calls != m.entry.calls {
			m.entry.calls, m.entry.used = calls, at
		} else if at-m.entry.used > idleAfter {
			target = r.remove(m) || target
		}
	}
	if target {
		r.forgetNames()
	}
}

// remove removes a method, and its target if that has no other, and reports whether it removed the
// target. r.mu must be held.
func (r *Registry) remove(m *Method) (target bool) {
	r.count.Add(-1)
	r.forgot = true
	m.Target.methods.Delete(m.Name)
	m.Counters.left.Store(true)
	m.Counters.Flush()
	if m.Target.count--; m.Target.count == 0 {
		r.targets.Delete(m.Target.Name)
		return true
	}
	return false
}
