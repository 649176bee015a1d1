package registry

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

const (
	// MaxClasses is the most classes of a method, beside the one that all others share.
	MaxClasses = 16
	// OtherClass is the name of the class that all others share.
	OtherClass = "(other)"

	maxClassName = 64 // bytes
)

// classFunction returns the name of a request's class: see settings.Config.Class.
type classFunction = func(ctx context.Context, method string, request any) string

// Classes are what a method has learned of the classes of one class function. A call uses those of the function that was in force
// when it began. Those of another function have places of their own, so that names which no longer come take none.
type Classes struct {
	function classFunction // nil: not known yet, of what was taken over; guarded by Registry.mu
	known    sync.Map      // name → *Class

	mu      sync.Mutex
	count   int
	retired bool                       // another function is in force: no class is added
	former  map[string]*Class          // of the function before, which are used again if their names come again
	taken   map[string]learn.Knowledge // what was taken over of classes that are not known yet
}

// Class is what was learned of the requests of one class.
type Class struct {
	name    string
	Learner learn.Learner
	Alarm   race.Alarm // says when the first hedges of calls are due
	memory  sketch.Meter
}

// classesOf returns the classes of a function; nil without a function. Registry.mu must be held.
func (m *Method) classesOf(function classFunction) *Classes {
	if function == nil {
		return nil
	}
	old := m.classes.Load()
	if old != nil && old.function == nil {
		old.function = function
	}
	if old != nil && isSame(old.function, function) {
		return old
	}
	cs := m.newClasses()
	cs.function = function
	if old != nil {
		old.retire(m, cs)
	}
	m.classes.Store(cs)
	return cs
}

func (m *Method) newClasses() *Classes {
	m.memory.Add(classesBytes)
	return new(Classes)
}

// isSame reports whether two functions are one value, which Go does not tell. A closure that was made anew is another one. Both
// are in use, so that neither address has been given away.
func isSame(a, b classFunction) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b))
}

// retire leaves what is known to the classes of the next function. The class of all others is another one there.
func (cs *Classes) retire(m *Method, next *Classes) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.forgetFormer()
	next.former, next.taken = map[string]*Class{}, cs.taken
	cs.retired, cs.taken = true, nil
	cs.known.Range(func(_, value any) bool {
		if c := value.(*Class); c.name == OtherClass {
			c.memory.Release()
		} else {
			next.former[c.name] = c
		}
		return true
	})
	m.memory.Add(-classesBytes)
}

// forgetFormer forgets the classes of the function before that have not come again. cs.mu must be held.
func (cs *Classes) forgetFormer() {
	for _, c := range cs.former {
		c.memory.Release()
	}
	cs.former = nil
}

// Of returns the entry of a class, made now if need be; nil if it has none, and another function is in force.
func (cs *Classes) Of(m *Method, name string) *Class {
	if len(name) > maxClassName {
		name = strings.ToValidUTF8(name[:maxClassName], "")
	}
	if c, ok := cs.known.Load(name); ok {
		return c.(*Class)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.count >= MaxClasses {
		name = OtherClass
	}
	if c, ok := cs.known.Load(name); ok {
		return c.(*Class)
	}
	if cs.retired {
		return nil
	}
	c := cs.former[name]
	if c != nil {
		delete(cs.former, name)
		c.Learner.Configure(m.Learner.Config())
	} else {
		c = cs.newClass(m, name)
	}
	cs.known.Store(c.name, c)
	if cs.count++; cs.count >= MaxClasses {
		cs.forgetFormer()
	}
	return c
}

// newClass makes a class. cs.mu must be held.
func (cs *Classes) newClass(m *Method, name string) *Class {
	c := &Class{name: strings.Clone(name)}
	c.memory.PartOf(&m.memory)
	c.memory.Add(c.bytes())
	m.learn(m.Learner.Config(), &c.Learner, &c.memory, c.name) // not the call's, which an update may have replaced: see relearn
	cs.handOver(m, c)
	return c
}

const (
	classBytes   = int64(unsafe.Sizeof(Class{})) + mapShare + estimates
	classesBytes = int64(unsafe.Sizeof(Classes{})) + mapShare
)

func (c *Class) bytes() int64 { return classBytes + allocated(c.name) }

// relearn lets all classes learn under another configuration. The method's own learner does already, so that a class that is
// made at the same time begins with it, or is found here. There may be none.
func (cs *Classes) relearn(c *learn.Config) {
	if cs == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.known.Range(func(_, value any) bool {
		value.(*Class).Learner.Configure(c)
		return true
	})
}

// stats returns what is known of each class, by name; nil without classes.
func (cs *Classes) stats(now time.Time) []stats.Class {
	if cs == nil {
		return nil
	}
	var rows []stats.Class
	cs.known.Range(func(_, value any) bool {
		c := value.(*Class)
		row := stats.Class{Class: c.name}
		if e := c.Learner.Estimate(); e != nil {
			row.Delay, row.Choice = e.Delay, e.Stats()
		}
		d := c.Learner.Snapshot(now)
		row.P50, _ = d.Quantile(0.50)
		row.P90, _ = d.Quantile(0.90)
		row.P99, _ = d.Quantile(0.99)
		rows = append(rows, row)
		return true
	})
	slices.SortFunc(rows, func(a, b stats.Class) int { return strings.Compare(a.Class, b.Class) })
	return rows
}
