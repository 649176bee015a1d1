package registry

import (
	"strings"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/feature/followup"
	"github.com/grpchedge/hedge/internal/feature/guard"
	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/feature/throttle"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Target is the state of one target, or, with WithTargetName, of all targets of one name.
type Target struct {
	// expected is the calls a second, as taken over; 0 when the bucket has them, or nothing is known. It is the first field, for
	// alignment on 32-bit machines.
	expected atomic.Float64

	Name   string
	Budget *budget.Bucket
	Resets resets.Resets
	Room   followup.Room // of followed losers

	registry *Registry
	guard    guard.Target
	throttle *throttle.Throttle // nil: none; guarded by Registry.mu

	oneConnection oneConnection
	firstCalls    firstCalls

	methods     sync.Map // full name → *Method
	count       int      // methods; guarded by Registry.mu
	connections []string // the targets to which WithTargetName gives the name; guarded by Registry.mu
}

// Method is the state of one method of one target.
type Method struct {
	// The fields that every call uses are first and next to each other, so that a call touches few cache lines.
	Learner  learn.Learner
	Counters Counters

	Name   string
	Target *Target

	Alarm race.Alarm // the timer for the first hedges of its calls

	settings atomic.Pointer[settings.Settings] // the newest that a call has needed
	own      *budget.Bucket                    // nil if it never had one; guarded by Registry.mu
	classes  atomic.Pointer[Classes]           // of requests; nil if it never had a class function
	guard    guard.Method
	noPolicy atomic.Bool             // WithOtherBackendOnly found no policy of package balancer
	history  atomic.Pointer[history] // nil before the first sample
	memory   sketch.Meter
	entry    entry
}

// targetNamed returns the target of a name; nil if nothing is known of it.
func (r *Registry) targetNamed(name string) *Target {
	if r == nil {
		return nil
	}
	return find[Target](&r.targets, name)
}

// targetOf returns the target of a connection; nil if nothing is known of it.
func (r *Registry) targetOf(connection string) *Target {
	if r.config.Load().TargetName == nil {
		return r.targetNamed(connection)
	}
	return find[Target](&r.connections, connection)
}

func (t *Target) find(methodName string) *Method {
	if t == nil {
		return nil
	}
	return find[Method](&t.methods, methodName)
}

// find returns what a map has under a name; nil if it has nothing.
func find[T any](in *sync.Map, name string) *T {
	value, _ := in.Load(name)
	found, _ := value.(*T)
	return found
}

// Method returns the entry of a method, for a call that begins. It makes the entry if there is none, and removes entries
// that are idle or exceed the memory.
func (r *Registry) Method(connection, methodName string, now time.Time) *Method {
	m := r.targetOf(connection).find(methodName)
	if m == nil {
		m = r.add(connection, methodName, now)
	}
	at := now.Sub(r.epoch)
	if due := r.sweep.Load(); at > due && r.sweep.CompareAndSwap(due, at+sweepEvery) {
		r.removeIdle(at)
	}
	if r.memory.Bytes() > r.config.Load().MaxMemory && r.mu.TryLock() { // one caller at a time makes room
		r.makeRoom()
		r.mu.Unlock()
	}
	return m
}

func (r *Registry) add(connection, methodName string, now time.Time) *Method {
	name := r.nameOf(connection) // before the lock, as it may call the user's function
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.addTarget(name, now)
	r.remember(connection, t)
	if m := t.find(methodName); m != nil { // another call was faster
		return m
	}
	m := r.newMethod(t, strings.Clone(methodName))
	r.entries.add(m, now.Sub(r.epoch))
	return m
}

func (r *Registry) addTarget(name string, now time.Time) *Target {
	if t := r.targetNamed(name); t != nil {
		return t
	}
	t := &Target{Name: strings.Clone(name), registry: r, Budget: budget.New(r.config.Load().ForTarget(name).BudgetPercent)}
	if r.entries.crowded {
		// A new bucket has one token. If memory is short, targets are removed and made again all the time, and these tokens
		// would exceed the budget. So the token is taken out.
		t.Budget.Pay(now, true, 1)
	}
	r.memory.Add(t.bytes())
	r.targets.Store(t.Name, t)
	return t
}

func (r *Registry) newMethod(t *Target, name string) *Method {
	m := &Method{Name: name, Target: t}
	m.Counters.departed = &r.departed
	m.guard.Join(&t.guard)
	m.memory.PartOf(&r.memory)
	m.memory.Add(methodBytes + allocated(name))
	s := m.resolve(r.config.Load())
	m.settings.Store(s)
	m.learn(s.Learning, &m.Learner, &m.memory, "")
	t.count++
	t.methods.Store(m.Name, m)
	return m
}

// learn prepares a learner of the method: its own, or one of a class, whose memory is counted.
func (m *Method) learn(c *learn.Config, l *learn.Learner, memory *sketch.Meter, class string) {
	r := m.Target.registry
	var looked func(time.Time)
	if class == "" {
		looked = func(now time.Time) { r.sample(m, now) }
	}
	l.Start(c, learn.Place{
		Budget:   m.Target.Budget,
		Epoch:    r.epoch,
		Memory:   memory,
		Panicked: func() { m.Counters.Update(func(s *stats.Counts) { s.TriggerPanics++ }) },
		Looked:   looked,
		Changed: func(choice *stats.Choice) {
			traces := r.config.Load().Traces
			if choice == nil {
				settings.Tell(traces, stats.DistributionChanged{Target: m.Target.Name, Method: m.Name, Class: class})
			} else {
				settings.Tell(traces, stats.HedgingStepped{Target: m.Target.Name, Method: m.Name, Class: class, Choice: *choice})
			}
		},
		NothingToGain: func() bool { return m.Settings().FollowUp.NothingToGain() },
	})
}

const maxTargetName = 1024 // bytes

func (r *Registry) nameOf(connection string) string {
	if r.config.Load().TargetName == nil {
		return connection
	}
	if t := r.targetOf(connection); t != nil {
		return t.Name
	}
	name := r.config.Load().TargetName(connection)
	if len(name) > maxTargetName {
		name = strings.ToValidUTF8(name[:maxTargetName], "")
	}
	return name
}

// namesShare is the divisor for the part of the memory that the keys of Registry.connections may take: one eighth.
const namesShare = 8

// remember stores the target of a connection, so that its next call need not ask WithTargetName. r.mu must be held.
//
// The number of connections with one name is not bounded. If all of them take too much memory, all are forgotten. Those in
// use are stored again with their next call.
func (r *Registry) remember(connection string, t *Target) {
	if r.config.Load().TargetName == nil || r.targetOf(connection) != nil {
		return
	}
	if r.entries.names > r.config.Load().MaxMemory/namesShare {
		r.targets.Range(func(_, t any) bool {
			r.forget(t.(*Target))
			return true
		})
	}
	connection = strings.Clone(connection)
	t.connections = append(t.connections, connection)
	r.connections.Store(connection, t)
	r.countName(connection, 1)
}

// forget undoes remember for all connections of a target. r.mu must be held.
func (r *Registry) forget(t *Target) {
	for _, connection := range t.connections {
		r.connections.Delete(connection)
		r.countName(connection, -1)
	}
	t.connections = nil
}

func (r *Registry) countName(connection string, sign int64) {
	bytes := sign * (allocated(connection) + mapShare)
	r.entries.names += bytes
	r.memory.Add(bytes)
}

// connectionTargets returns, for each name, the targets of the connections that have it.
func (r *Registry) connectionTargets() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	named := map[string][]string{}
	r.targets.Range(func(name, t any) bool {
		if r.config.Load().TargetName == nil {
			named[name.(string)] = []string{name.(string)}
		} else {
			named[name.(string)] = t.(*Target).connections
		}
		return true
	})
	return named
}
