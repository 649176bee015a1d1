package hedge

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/learn"
)

// Caps on what a scheduler remembers. A target or method past its cap shares one entry, named Other, with all
// others past it: it is still hedged, by what they have in common.
const (
	maxTargets = 16384
	maxMethods = 256 // per target
)

// A target without a call for idleAfter leaves with all that it has learned. Leaving needs no goroutine: some
// call of another target looks for idle ones, at most once in sweepEvery.
const (
	idleAfter  = 15 * time.Minute
	sweepEvery = time.Minute
)

// target is what a scheduler knows of one connection target.
type target struct {
	name     string
	budget   *budget.Bucket
	throttle *throttle    // nil: none
	used     atomic.Int64 // about when it last had a call, ns after the scheduler's epoch

	methods sync.Map // full name → *method
	count   int      // methods, without other; guarded by Scheduler.mu
	other   *method  // shared by the methods past the cap; nil until then; guarded by Scheduler.mu
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
	shared    bool    // stands for several methods, so that hedged, described and policy do not apply
	described bool    // or not hedged for want of a descriptor
	policy    *policy // the service config's; nil: none
	classes   classes // of requests
	groups    *groups // nil without a control group
}

// find returns the entry of a method, nil if it has none of its own.
func (s *Scheduler) find(targetName, methodName string) *method {
	if s == nil {
		return nil
	}
	if t, ok := s.targets.Load(targetName); ok {
		if m, ok := t.(*target).methods.Load(methodName); ok {
			return m.(*method)
		}
	}
	return nil
}

// method returns the entry in which a call of the method counts, made now if need be.
func (s *Scheduler) method(targetName, methodName string, now time.Time) *method {
	m := s.find(targetName, methodName)
	if m == nil {
		m = s.add(targetName, methodName, now)
	}
	t, at := m.target, int64(now.Sub(s.epoch))
	if at-t.used.Load() > int64(sweepEvery) {
		t.used.Store(at)
	}
	if due := s.sweep.Load(); at > due && s.sweep.CompareAndSwap(due, at+int64(sweepEvery)) {
		s.removeIdle(at)
	}
	return m
}

func (s *Scheduler) add(targetName, methodName string, now time.Time) *method {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.addTarget(targetName, now)
	if m, ok := t.methods.Load(methodName); ok { // another call was faster
		return m.(*method)
	}
	if t == s.other || t.count == maxMethods {
		if t.other == nil {
			t.other = s.newMethod(t, Other)
			t.other.shared = true
		}
		return t.other
	}
	t.count++
	m := s.newMethod(t, strings.Clone(methodName))
	t.methods.Store(m.name, m)
	return m
}

func (s *Scheduler) addTarget(name string, now time.Time) *target {
	if t, ok := s.targets.Load(name); ok {
		return t.(*target)
	}
	if s.count == maxTargets {
		if s.other == nil {
			s.other = s.newTarget(Other, now)
		}
		return s.other
	}
	s.count++
	t := s.newTarget(strings.Clone(name), now)
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
	t.throttle = newThrottle(s.config.throttling())
	t.used.Store(int64(now.Sub(s.epoch)))
	return t
}

func (s *Scheduler) newMethod(t *target, name string) *method {
	m := &method{name: name, target: t, policy: s.config.policyOf(name), groups: newGroups(s.config.control)}
	m.hedged, m.described = s.config.selects(name)
	m.learner.Start(&s.learning, t.budget, s.epoch, m.policy == nil)
	return m
}

// removeIdle lets go of targets without a recent call. What a call that is still in flight on one of them adds
// later is not counted.
func (s *Scheduler) removeIdle(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets.Range(func(key, value any) bool {
		if t := value.(*target); at-t.used.Load() > int64(idleAfter) {
			s.targets.Delete(key)
			s.count--
			t.eachMethod(func(m *method) { s.departed.add(m.counters.read()) })
		}
		return true
	})
}

// eachMethod visits every entry, with s.mu held.
func (s *Scheduler) eachMethod(visit func(*method)) {
	s.targets.Range(func(_, value any) bool {
		value.(*target).eachMethod(visit)
		return true
	})
	if s.other != nil {
		s.other.eachMethod(visit)
	}
}

func (t *target) eachMethod(visit func(*method)) {
	t.methods.Range(func(_, value any) bool {
		visit(value.(*method))
		return true
	})
	if t.other != nil {
		visit(t.other)
	}
}
