package registry

import (
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

// Target is the state of one target, or, with WithTargetName, of all targets with the same name.
type Target struct {
	Name   string
	Budget *budget.Bucket
	Resets guard.Resets

	Backends *place.Known

	registry *Registry
	guard    guard.Shared
	throttle *guard.Throttle // nil: none; guarded by Registry.mu

	unselected atomic.Int32 // calls before the first that the options select; then firstCallsSeen: see NoteSelected

	methods sync.Map // full name → *Method
	count   int      // methods; guarded by Registry.mu
}

// Method is the state of one method of a target.
type Method struct {
	// The fields that every call uses are first, so that a call touches few cache lines.
	Learner  trigger.Learner
	Counters Counters

	Name   string
	Target *Target

	SecondRequests SecondRequests // of a method of WithSingleRequest

	Guard guard.Guard

	Alarm race.Alarm // the timer for the first hedges of its calls

	settings atomic.Pointer[settings.Settings] // in force for calls that begin now
	names    atomic.Pointer[stats.Names]       // see Begins
	own      *budget.Bucket                    // nil if it never had one; guarded by Registry.mu, as is groups
	groups   *control.Groups                   // the last in settings
	classes  classes                           // of requests
	made     time.Duration                     // after the registry's origin
	recent   recent
	entry    entry

	destinations atomic.Pointer[[]string] // see SentTo

	notedUnhedgeable atomic.Bool // see ReportUnhedgeable
}

func (r *Registry) target(name string) *Target { return find[Target](&r.targets, name) }

func (r *Registry) Find(target, method string) *Method {
	if r == nil {
		return nil
	}
	if t := r.target(target); t != nil {
		return find[Method](&t.methods, method)
	}
	if target == Other && method == Other {
		return r.other.Load()
	}
	return nil
}

func find[T any](in *sync.Map, name string) *T {
	value, _ := in.Load(name)
	found, _ := value.(*T)
	return found
}

// Method returns the entry of a method, for a call that begins at now. It makes a missing entry, or
// returns Other if there are MaxMethods, and removes idle entries. It returns nil for an empty registry.
func (r *Registry) Method(connection, methodName string, now time.Time) *Method {
	if r == nil || r.config.Load() == nil {
		return nil
	}
	target := r.nameOf(connection)
	m := r.Find(target, methodName)
	if m == nil {
		m = r.add(target, methodName, now)
	}
	at := now.Sub(r.origin)
	if due := r.sweep.Load(); at > due && r.sweep.CompareAndSwap(due, at+sweepEvery) {
		r.removeIdle(at)
	}
	return m
}

// At returns the entry of the method at another target, for a call that begins at now.
func (m *Method) At(target string, now time.Time) *Method {
	to := m.Target.registry.Method(target, m.Name, now)
	if known := to.names.Load(); known.Method == "" {
		names := stats.Names{Target: strings.ToValidUTF8(to.Target.Name, "\ufffd"), Method: m.Names().Method}
		to.names.CompareAndSwap(known, &names)
	}
	return to
}

func (r *Registry) add(target, methodName string, now time.Time) *Method {
	for {
		c := r.config.Load()
		if int(r.count.Load()) >= c.MaxMethods {
			return r.otherMethod()
		}
		s := c.For(target, methodName) // without the lock: there may be thousands of rules
		r.mu.Lock()
		m := r.Find(target, methodName)       // another call may have been faster
		if m == nil && r.config.Load() == c { // not updated in between
			if full := int(r.count.Load()) >= c.MaxMethods; full {
				r.mu.Unlock()
				continue
			}
			m = r.newMethod(r.addTarget(target, s.Target.BudgetPercent), methodName, s)
			m.made = now.Sub(r.origin)
			m.entry.used = m.made
			r.count.Add(1)
		}
		r.mu.Unlock()
		if m != nil {
			return m
		}
	}
}

func (r *Registry) newMethod(t *Target, name string, with *settings.Settings) *Method {
	m := &Method{Name: strings.Clone(name), Target: t}
	m.Counters.departed = &r.departed
	m.Guard.Target = &t.guard
	m.names.Store(&stats.Names{})
	m.complete(with)
	m.settings.Store(with)
	m.learn(&with.Config.Config, &m.Learner)
	t.count++
	t.methods.Store(m.Name, m)
	return m
}

func (m *Method) learn(c *trigger.Config, l *trigger.Learner) {
	r := m.Target.registry
	l.Start(c, trigger.Owner{
		Budget:    m.Target.Budget,
		Pace:      &r.pace,
		Origin:    r.origin,
		Panicked:  func() { m.Counters.Update(func(s *stats.Counts) { s.TriggerPanics++ }) },
		Evaluated: m.sample,
	})
}

func (r *Registry) addTarget(name string, budgetPercent float64) *Target {
	if t := r.target(name); t != nil {
		return t
	}
	t := &Target{Name: strings.Clone(name), registry: r, Backends: place.NewKnown(),
		Budget: r.newBudget(budgetPercent)}
	r.targets.Store(t.Name, t)
	return t
}

// newBudget returns the bucket of a new target or method. It holds one token, or none once a method
// was removed: targets that return would exceed the budget by the first tokens of their new buckets.
func (r *Registry) newBudget(percent float64) *budget.Bucket {
	b := budget.New(percent)
	if r.forgot {
		b.Pay(r.origin, 0)
	}
	return b
}

const maxTargetName = 1024 // bytes

// nameOf returns the name of a connection's target. All names are forgotten once there are as many
// as MaxMethods, or when a target has become idle.
func (r *Registry) nameOf(connection string) string {
	c := r.config.Load()
	if c.TargetName == nil {
		return connection
	}
	if name, known := r.names.Load(connection); known {
		return name.(string)
	}
	name := c.TargetName(connection) // without the lock: the function is the user's
	if len(name) > maxTargetName {
		name = strings.ToValidUTF8(name[:maxTargetName], "")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.named >= c.MaxMethods {
		r.forgetNames()
	}
	if _, known := r.names.LoadOrStore(strings.Clone(connection), strings.Clone(name)); !known {
		r.named++
	}
	return name
}

// r.mu must be held.
func (r *Registry) forgetNames() {
	r.names.Clear()
	r.named = 0
}

// NoteSelected records whether the options select a call. It emits a notice, once, if they selected
// none of the first firstCallsSeen calls.
func (t *Target) NoteSelected(selected bool) {
	switch n := t.unselected.Load(); {
	case n >= firstCallsSeen:
	case selected:
		t.unselected.Store(firstCallsSeen)
	case t.unselected.Add(1) == firstCallsSeen:
		t.reportUnselected()
	}
}

// Begins returns the settings in force for a call that begins, and whether hedging is paused. It
// records the names of the method and its target for metrics: see stats.Names. conn is nil for
// hedge.Do. static reports whether the call has the option grpc.StaticMethod.
func (m *Method) Begins(conn any, static bool) (s *settings.Settings, paused bool) {
	m.noteNames(conn, static || conn == nil)
	return m.settings.Load(), m.Paused()
}

// Settings returns the settings in force for calls that begin now.
func (m *Method) Settings() *settings.Settings { return m.settings.Load() }

func (m *Method) Paused() bool { return m.Target.registry.pause.Load() != "" }

// Traffic is the guard's measure of calls.
func (m *Method) Traffic() guard.Traffic {
	return guard.Traffic{Method: float64(m.Counters.Calls.Load()), Target: m.Target.Budget.Calls()}
}

func (m *Method) Names() stats.Names { return *m.names.Load() }

func (m *Method) noteNames(conn any, static bool) {
	known := m.names.Load()
	if known.Method != "" && (!static || known.Method != "other") {
		return
	}
	names := stats.Names{Target: m.Target.Name, Method: "other"}
	if c, ok := conn.(interface{ CanonicalTarget() string }); ok && m.Target.registry.config.Load().TargetName == nil {
		names.Target = c.CanonicalTarget()
	}
	if static {
		names.Method = strings.ToValidUTF8(strings.TrimLeft(m.Name, "/"), "\ufffd")
	}
	names.Target = strings.ToValidUTF8(names.Target, "\ufffd")
	m.names.CompareAndSwap(known, &names)
}

const maxDestinations = 4

// SentTo records that a hedge of the method was sent to another target.
func (m *Method) SentTo(target string) {
	for {
		var names []string
		known := m.destinations.Load()
		if known != nil {
			names = *known
		}
		if len(names) == maxDestinations || slices.Contains(names, target) {
			return
		}
		more := append(slices.Clip(names), target)
		if m.destinations.CompareAndSwap(known, &more) {
			return
		}
	}
}

// SecondRequests measures how often the callers of a bidirectional method send a second message. It
// may be used concurrently.
type SecondRequests struct{ level atomic.Int32 }

const (
	often     = 16 // one stream in this many
	mostLevel = 10 * often
)

// Expected reports whether a second message is expected of a stream that begins, and counts the stream.
func (t *SecondRequests) Expected() bool {
	level := t.level.Load()
	if level > 0 {
		t.level.Add(-1)
	}
	return level > 3*often
}

func (t *SecondRequests) Add() {
	if t.level.Add(often) > mostLevel {
		t.level.Store(mostLevel)
	}
}
