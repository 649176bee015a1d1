package engine

import (
	"strings"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/latency"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
)

// target is what an engine knows of one connection target, or of several of one name.
type target struct {
	name     string
	budget   *budget.Bucket
	throttle *throttle // nil: none

	methods     sync.Map // full name → *method
	count       int      // methods; guarded by Engine.mu
	connections []string // what WithTargetName gave the name; guarded by Engine.mu
}

// method is what an engine knows of one method of one target.
type method struct {
	// What every call reads and writes comes first and together: on a machine with idle cores the price of a call
	// is the cache lines that it touches.
	learner  learn.Learner
	counters counters

	name      string
	target    *target
	selected  bool           // WithMethods and WithIdempotentOnly let it be hedged
	described bool           // or not selected for want of a descriptor
	onlyReads bool           // NO_SIDE_EFFECTS or WithReadOnlyMethods
	policy    *hedgingPolicy // the service config's; nil: none

	classes classes // of requests
	groups  *groups // nil without a control group

	alarm    race.Alarm  // says when the first hedges of calls are due
	noPolicy atomic.Bool // WithOtherBackendOnly found no policy that knows of backends
	memory   latency.Meter
	entry    entry
}

// named returns the target of a name; nil if nothing is known of it.
func (e *Engine) named(name string) *target {
	if e == nil {
		return nil
	}
	t, _ := e.targets.Load(name)
	found, _ := t.(*target)
	return found
}

// of returns the target of a connection; nil if nothing is known of it.
func (e *Engine) of(connection string) *target {
	if e.config.TargetName == nil {
		return e.named(connection)
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

// method returns the entry in which a call of the method counts, made now if need be.
func (e *Engine) method(connection, methodName string, now time.Time) *method {
	m := e.of(connection).find(methodName)
	if m == nil {
		m = e.add(connection, methodName, now)
	}
	at := now.Sub(e.epoch)
	if due := e.sweep.Load(); at > due && e.sweep.CompareAndSwap(due, at+sweepEvery) {
		e.removeIdle(at)
	}
	if e.memory.Bytes() > e.config.MaxMemory && e.mu.TryLock() { // one caller at a time makes room
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
	if t := e.named(name); t != nil {
		return t
	}
	t := e.newTarget(strings.Clone(name), now)
	e.memory.Add(t.bytes())
	e.targets.Store(t.name, t)
	return t
}

func (e *Engine) newTarget(name string, now time.Time) *target {
	t := &target{name: name, budget: budget.New(e.config.BudgetPercent)}
	if e.entries.crowded {
		// Where targets come and go for want of memory, each of them would bring the one token that a bucket starts with.
		t.budget.Spend(now, true)
	}
	t.throttle = newThrottle(e.config.throttling())
	return t
}

func (e *Engine) newMethod(t *target, name string) *method {
	m := &method{name: name, target: t, policy: e.config.policyOf(name)}
	m.selected, m.described = e.config.selects(name)
	m.onlyReads = e.config.onlyReads(name)
	m.counters.departed = &e.departed
	m.memory.PartOf(&e.memory)
	m.memory.Add(m.bytes())
	m.groups = newGroups(e.config.Control, &m.memory)
	m.learn(e, &m.learner)
	return m
}

// learn prepares a learner of the method: its own, or one of a class.
func (m *method) learn(e *Engine, l *learn.Learner) {
	l.Start(&e.learning, learn.Place{
		Budget:   m.target.budget,
		Epoch:    e.epoch,
		Choosing: m.policy == nil,
		Memory:   &m.memory,
		Panicked: m.triggerPanicked,
	})
}

// triggerPanicked counts a panic in the trigger, whose last estimate stays in force.
func (m *method) triggerPanicked() { m.counters.update(func(s *Stats) { s.TriggerPanics++ }) }

// eachMethod visits every entry, with e.mu held.
func (e *Engine) eachMethod(visit func(*method)) {
	e.entries.each(visit)
}
