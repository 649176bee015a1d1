package registry

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/internal/alarm"
	"github.com/grpchedge/hedge/internal/learn"
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

// classes are what a method has learned of the classes of its requests. Each class function has a turn. A call uses the classes of
// the function that was in force when it began. When the function changes, all places are free for the new one's classes. A class
// that both functions name keeps what it has learned.
type classes struct {
	known sync.Map // name → *Class

	mu       sync.Mutex
	function classFunction              // in force; nil: not known yet, of what was taken over
	turn     int32                      // of the function
	count    int                        // classes of this turn
	taken    map[string]learn.Knowledge // what was taken over of classes that are not known yet
}

// Class is what was learned of the requests of one class.
type Class struct {
	name    string
	turn    atomic.Int32 // the last in which it was used
	Learner learn.Learner
	Alarm   alarm.Alarm // says when the first hedges of calls are due
}

// turnOf returns the turn of a class function; 0 without one. Registry.mu must be held.
func (cs *classes) turnOf(function classFunction) int32 {
	if function == nil {
		return 0
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !isSame(cs.function, function) {
		cs.forget()
		cs.function, cs.count = function, 0
		cs.turn++
	}
	return cs.turn
}

// isSame reports whether two functions are one value. Go cannot compare functions, so it compares their addresses. Both functions
// are in use, so neither address has been used again. A closure that was made anew is another function.
func isSame(a, b classFunction) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b))
}

// forget forgets the classes of former turns that have not come again. The lock must be held.
func (cs *classes) forget() {
	cs.known.Range(func(name, value any) bool {
		if value.(*Class).turn.Load() < cs.turn {
			cs.known.Delete(name)
		}
		return true
	})
}

// current returns the classes of this turn.
func (cs *classes) current() []*Class {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var all []*Class
	cs.known.Range(func(_, value any) bool {
		if c := value.(*Class); c.turn.Load() == cs.turn {
			all = append(all, c)
		}
		return true
	})
	return all
}

// Class returns the entry of a class for a call that has begun in a turn. It makes the entry if there is none, unless the turn is
// over: then it returns nil.
func (m *Method) Class(turn int32, name string) *Class {
	cs := &m.classes
	if len(name) > maxClassName {
		name = strings.ToValidUTF8(name[:maxClassName], "")
	}
	if c := find[Class](&cs.known, name); c != nil && c.turn.Load() >= turn {
		return c
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if turn < cs.turn {
		return find[Class](&cs.known, name)
	}
	if cs.count >= MaxClasses {
		name = OtherClass
	}
	c := find[Class](&cs.known, name)
	switch {
	case c == nil:
		c = cs.add(m, name)
	case c.turn.Load() == turn:
		return c
	default:
		c.Learner.Configure(m.Learner.Config())
	}
	c.turn.Store(turn)
	if cs.count++; cs.count >= MaxClasses {
		cs.forget()
	}
	return c
}

// HasClasses reports whether a request of the method had a class.
func (m *Method) HasClasses() bool {
	has := false
	m.classes.known.Range(func(_, _ any) bool { has = true; return false })
	return has
}

// add makes a class, which begins with what was taken over of it. The lock must be held.
func (cs *classes) add(m *Method, name string) *Class {
	c := &Class{name: strings.Clone(name)}
	m.learn(m.Learner.Config(), &c.Learner, c.name) // not the call's, which an update may have replaced
	if k, ok := cs.taken[c.name]; ok {
		c.Learner.TakeOver(k)
		delete(cs.taken, c.name)
	}
	cs.known.Store(c.name, c)
	return c
}

// stats returns what is known of each class, by name; nil without classes.
func (cs *classes) stats(now time.Time) []stats.Class {
	var rows []stats.Class
	for _, c := range cs.current() {
		rows = append(rows, stats.Class{Class: c.name, Learned: learned(&c.Learner, now)})
	}
	slices.SortFunc(rows, func(a, b stats.Class) int { return strings.Compare(a.Class, b.Class) })
	return rows
}
