package engine

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
)

const (
	// MaxClasses is the most classes of a method, beside the one that all others share.
	MaxClasses = 16
	// OtherClass is the name of the class that all others share.
	OtherClass = "(other)"

	maxClassName = 64 // bytes
)

// classes are what a method has learned of each class of requests.
type classes struct {
	known sync.Map // name → *class
	mu    sync.Mutex
	count int
}

type class struct {
	name    string
	learner learn.Learner
	alarm   race.Alarm // says when the first hedges of calls are due
}

// of returns the entry of a class, made now if need be.
func (cs *classes) of(e *Engine, m *method, name string) *class {
	name = name[:min(len(name), maxClassName)]
	if c, ok := cs.known.Load(name); ok {
		return c.(*class)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.count >= MaxClasses {
		name = OtherClass
	}
	if c, ok := cs.known.Load(name); ok {
		return c.(*class)
	}
	c := &class{name: strings.Clone(name)}
	if cs.count == 0 {
		m.memory.Add(mapShare) // of the map itself
	}
	m.memory.Add(c.bytes())
	m.learn(e, &c.learner)
	cs.known.Store(c.name, c)
	cs.count++
	return c
}

const classBytes = int64(unsafe.Sizeof(class{})) + mapShare + estimates

func (c *class) bytes() int64 { return classBytes + allocated(c.name) }

// Classify tells the request of the call, for Config.Class: see SetClass.
func (c *Call) Classify(request any) {
	if c.Classifies() {
		c.SetClass(c.ClassOf(request))
	}
}

// Classifies reports whether Classify has anything to do.
func (c *Call) Classifies() bool {
	return c.Learns() && c.engine.config.Class != nil && c.class == nil
}

// ClassOf asks Config.Class, which is the user's, for the class of a request. It may be called at any time, if the call
// classifies.
func (c *Call) ClassOf(request any) string {
	return c.engine.config.Class(c.ctx, c.method.name, request)
}

// SetClass says of which class the call's request is, "" being none: the delay is that of the class from now on, and the
// class learns what the call takes. It comes before the first hedge is due, and no other method is called meanwhile.
func (c *Call) SetClass(name string) {
	if name == "" {
		return
	}
	c.class = c.method.classes.of(c.engine, c.method, name)
	if c.estimate == nil {
		return
	}
	if e := c.class.learner.EstimateFor(c.start); e != nil {
		c.estimate, c.delay = e, e.Delay
		if e.Trickle != nil {
			e.Trickle.Earn(c.start)
		}
	}
}

// learners does something with each learner that the call teaches: the method's and its class's.
func (c *Call) learners(teach func(*learn.Learner)) {
	teach(&c.method.learner)
	if c.class != nil {
		teach(&c.class.learner)
	}
}

// ClassStats is what is known of a class of requests of a method: see hedge.ClassStats.
type ClassStats struct {
	Class         string
	P50, P90, P99 time.Duration
	Estimate      *learn.Estimate // in force; nil while the class is being learned
}

// stats returns what is known of each class, by name; nil without classes.
func (cs *classes) stats(now time.Time) []ClassStats {
	var rows []ClassStats
	cs.known.Range(func(_, value any) bool {
		c := value.(*class)
		row := ClassStats{Class: c.name, Estimate: c.learner.Estimate()}
		d := c.learner.Snapshot(now)
		row.P50, _ = d.Quantile(0.50)
		row.P90, _ = d.Quantile(0.90)
		row.P99, _ = d.Quantile(0.99)
		rows = append(rows, row)
		return true
	})
	slices.SortFunc(rows, func(a, b ClassStats) int { return strings.Compare(a.Class, b.Class) })
	return rows
}
