package hedge

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/latency"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
)

// target is what a scheduler knows of one connection target, or of several of one name.
type target struct {
	name     string
	budget   *budget.Bucket
	throttle *throttle // nil: none

	methods     sync.Map // full name → *method
	count       int      // methods; guarded by Scheduler.mu
	connections []string // what WithTargetName gave the name; guarded by Scheduler.mu
}

// method is what a scheduler knows of one method of one target.
type method struct {
	// What every call reads and writes comes first and together: on a machine with idle cores the price of a call
	// is the cache lines that it touches.
	learner  learn.Learner
	counters counters

	name      string
	target    *target
	hedged    bool    // WithMethods and WithIdempotentOnly let it be hedged
	described bool    // or not hedged for want of a descriptor
	onlyReads bool    // NO_SIDE_EFFECTS or WithReadOnlyMethods
	policy    *policy // the service config's; nil: none

	alarm    race.Alarm  // says when the first hedges of calls are due
	noPolicy atomic.Bool // WithOtherBackendOnly found no policy that knows of backends
	memory   latency.Meter
	entry    entry
}

// named returns the target of a name; nil if nothing is known of it.
func (s *Scheduler) named(name string) *target {
	if s == nil {
		return nil
	}
	t, _ := s.targets.Load(name)
	found, _ := t.(*target)
	return found
}

// of returns the target of a connection; nil if nothing is known of it.
func (s *Scheduler) of(connection string) *target {
	if s.config.targetName == nil {
		return s.named(connection)
	}
	t, _ := s.connections.Load(connection)
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
func (s *Scheduler) method(connection, methodName string, now time.Time) *method {
	m := s.of(connection).find(methodName)
	if m == nil {
		m = s.add(connection, methodName, now)
	}
	at := int64(now.Sub(s.epoch))
	if due := s.sweep.Load(); at > due && s.sweep.CompareAndSwap(due, at+int64(sweepEvery)) {
		s.removeIdle(at)
	}
	if s.memory.Bytes() > s.config.maxMemory && s.mu.TryLock() { // one caller at a time makes room
		s.makeRoom()
		s.mu.Unlock()
	}
	return m
}

func (s *Scheduler) add(connection, methodName string, now time.Time) *method {
	name := s.nameOf(connection) // before the lock, as it may call the user's function
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.addTarget(name, now)
	s.remember(connection, t)
	if m := t.find(methodName); m != nil { // another call was faster
		return m
	}
	m := s.newMethod(t, strings.Clone(methodName))
	s.entries.add(m, int64(now.Sub(s.epoch)))
	t.count++
	t.methods.Store(m.name, m)
	return m
}

func (s *Scheduler) addTarget(name string, now time.Time) *target {
	if t := s.named(name); t != nil {
		return t
	}
	t := s.newTarget(strings.Clone(name), now)
	s.memory.Add(t.bytes())
	s.targets.Store(t.name, t)
	return t
}

func (s *Scheduler) newTarget(name string, now time.Time) *target {
	t := &target{name: name}
	if r := s.config.estimatedRPS; r > 0 {
		t.budget = budget.NewClocked(s.config.budgetPercent, r)
	} else {
		t.budget = budget.New(s.config.budgetPercent)
	}
	if s.entries.crowded {
		// Where targets come and go for want of memory, each of them would bring the one token that a bucket starts with.
		t.budget.Spend(now, true)
	}
	t.throttle = newThrottle(s.config.throttling())
	return t
}

func (s *Scheduler) newMethod(t *target, name string) *method {
	m := &method{name: name, target: t, policy: s.config.policyOf(name)}
	m.hedged, m.described = s.config.selects(name)
	m.onlyReads = s.config.onlyReads(name)
	m.counters.departed = &s.departed
	m.memory.PartOf(&s.memory)
	m.memory.Add(m.bytes())
	m.learner.Start(&s.learning, learn.Place{
		Budget:   t.budget,
		Epoch:    s.epoch,
		Choosing: m.policy == nil,
		Memory:   &m.memory,
		Panicked: m.triggerPanicked,
	})
	return m
}

// triggerPanicked counts a panic in the trigger, whose last estimate stays in force.
func (m *method) triggerPanicked() { m.counters.update(func(s *Stats) { s.TriggerPanics++ }) }

// eachMethod visits every entry, with s.mu held.
func (s *Scheduler) eachMethod(visit func(*method)) {
	s.entries.each(visit)
}
