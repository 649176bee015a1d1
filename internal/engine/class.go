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
	taken map[string]learn.Knowledge // what was taken over of classes that are not known yet
}

type class struct {
	name    string
	learner learn.Learner
	alarm   race.Alarm // says when the first hedges of calls are due
}

// of returns the entry of a class, made now if need be.
func (cs *classes) of(e *Engine, m *method, name string) *class {
	if len(name) > maxClassName {
		name = strings.ToValidUTF8(name[:maxClassName], "")
	}
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
	m.learn(e, m.learner.Config(), &c.learner, c.name) // not the call's, which an update may have replaced: see relearn
	cs.handOver(m, c)
	cs.known.Store(c.name, c)
	cs.count++
	return c
}

const classBytes = int64(unsafe.Sizeof(class{})) + mapShare + estimates

func (c *class) bytes() int64 { return classBytes + allocated(c.name) }

// relearn has all classes learn under another configuration. The method's own learner does already, so that a class that is
// made at the same time begins with it, or is found here.
func (cs *classes) relearn(c *learn.Config) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.known.Range(func(_, value any) bool {
		value.(*class).learner.Configure(c)
		return true
	})
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
