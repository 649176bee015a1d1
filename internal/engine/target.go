package engine

import (
	"strings"
	"sync"
	pointer "sync/atomic"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/feature/guard"
	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/serviceconfig"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// target is the state of one target, or, with WithTargetName, of all targets of one name.
type target struct {
	name       string
	budget     *budget.Bucket
	guard      guard.Target
	resets     resets.Resets
	throttle   *throttle               // nil: none; guarded by Engine.mu
	throttling *serviceconfig.Throttle // what the throttle was made from; guarded by Engine.mu

	oneConnection oneConnection
	firstCalls    firstCalls

	methods     sync.Map // full name → *method
	count       int      // methods; guarded by Engine.mu
	expected    expected // calls a second, as taken over; 0 when the bucket has them, or nothing is known
	connections []string // the targets to which WithTargetName gives the name; guarded by Engine.mu
}

// method is the state of one method of one target.
type method struct {
	// The fields that every call uses are first and next to each other, so that a call touches few cache lines.
	learner  learn.Learner
	counters counters

	name     string
	target   *target
	settings atomic.Pointer[terms] // the newest that a call has needed

	own *budget.Bucket // nil if it never had one; guarded by Engine.mu

	classes pointer.Pointer[classes] // of requests, of the newest class function; nil if it never had one

	guard   guard.Method
	history pointer.Pointer[history] // nil before the first sample

	alarm    race.Alarm  // the timer for the first hedges of its calls
	noPolicy atomic.Bool // WithOtherBackendOnly found no policy of package balancer
	memory   sketch.Meter
	entry    entry
}

// targetNamed returns the target of a name; nil if nothing is known of it.
func (e *Engine) targetNamed(name string) *target {
	if e == nil {
		return nil
	}
	t, _ := e.targets.Load(name)
	found, _ := t.(*target)
	return found
}

// targetOf returns the target of a connection; nil if nothing is known of it.
func (e *Engine) targetOf(connection string) *target {
	if e.config.Load().TargetName == nil {
		return e.targetNamed(connection)
	}
	t, _ := e.connections.Load(connection)
	found, _ := t.(*target)
	return found
}

// find returns the entry of a method; nil if it has none.
func (t *target) find(methodName string) *method {
	if t == nil {
		return nil
	}
	m, _ := t.methods.Load(methodName)
	found, _ := m.(*method)
	return found
}

// method returns the entry of a method, for a call that begins. It makes the entry if there is none, and removes entries
// that are idle or exceed the memory.
func (e *Engine) method(connection, methodName string, now time.Time) *method {
	m := e.targetOf(connection).find(methodName)
	if m == nil {
		m = e.add(connection, methodName, now)
	}
	at := now.Sub(e.epoch)
	if due := e.sweep.Load(); at > due && e.sweep.CompareAndSwap(due, at+sweepEvery) {
		e.removeIdle(at)
	}
	if e.memory.Bytes() > e.config.Load().MaxMemory && e.mu.TryLock() { // one caller at a time makes room
		e.makeRoom()
		e.mu.Unlock()
	}
	return m
}

func (e *Engine) add(connection, methodName string, now time.Time) *method {
	name := e.nameOf(connection) // before the lock, as it may call the user's function
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.addTarget(name, now)
	e.remember(connection, t)
	if m := t.find(methodName); m != nil { // another call was faster
		return m
	}
	m := e.newMethod(t, strings.Clone(methodName))
	e.entries.add(m, now.Sub(e.epoch))
	t.count++
	t.methods.Store(m.name, m)
	return m
}

func (e *Engine) addTarget(name string, now time.Time) *target {
	if t := e.targetNamed(name); t != nil {
		return t
	}
	t := e.newTarget(strings.Clone(name), now)
	e.memory.Add(t.bytes())
	e.targets.Store(t.name, t)
	return t
}

func (e *Engine) newTarget(name string, now time.Time) *target {
	t := &target{name: name, budget: budget.New(e.config.Load().ForTarget(name).BudgetPercent)}
	if e.entries.crowded {
		// A new bucket has one token. If memory is short, targets are removed and made again all the time, and these tokens
		// would exceed the budget. So the token is taken out.
		t.budget.Pay(now, true, 1)
	}
	return t
}

func (e *Engine) newMethod(t *target, name string) *method {
	m := &method{name: name, target: t}
	m.counters.departed = &e.departed
	m.guard.Join(&t.guard)
	m.memory.PartOf(&e.memory)
	m.memory.Add(m.bytes())
	s := m.resolve(e.config.Load())
	m.learn(e, s.learning, &m.learner, &m.memory, "")
	m.settings.Store(s)
	return m
}

// learn prepares a learner of the method: its own, or one of a class, whose memory is counted.
func (m *method) learn(e *Engine, c *learn.Config, l *learn.Learner, memory *sketch.Meter, class string) {
	var looked func(time.Time)
	if class == "" {
		looked = func(now time.Time) { e.sample(m, now) }
	}
	l.Start(c, learn.Place{
		Budget:   m.target.budget,
		Epoch:    e.epoch,
		Memory:   memory,
		Panicked: m.triggerPanicked,
		Changed:  e.changed(m, class),
		Looked:   looked,
	})
}

// triggerPanicked counts a panic in the trigger, whose last estimate stays in force.
func (m *method) triggerPanicked() { m.counters.update(func(s *stats.Counts) { s.TriggerPanics++ }) }

// eachMethod visits every entry, with e.mu held.
func (e *Engine) eachMethod(visit func(*method)) {
	e.entries.each(visit)
}
