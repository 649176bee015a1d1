package registry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

const (
	// MaxClasses is the largest number of classes of a method, besides OtherClass.
	MaxClasses = 16
	// OtherClass holds the requests of all classes without a place.
	OtherClass = "(other)"

	maxClassName = 64 // bytes
)

// classes are a method's request classes: see hedge.WithClass.
type classes struct {
	known sync.Map     // name → *Class
	count atomic.Int32 // of known

	mu    sync.Mutex
	swept time.Duration // when idle classes were last searched for, after the registry's origin
}

type Class struct {
	Name    string
	used    atomic.Int64 // when its last call began: a number of sweepEvery after the registry's origin
	Learner trigger.Learner
	Alarm   race.Alarm // the timer for the first hedges of its calls
}

// all returns every class. A class under construction is either included or starts after all has
// returned.
func (cs *classes) all() []*Class {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var all []*Class
	cs.known.Range(func(_, value any) bool {
		all = append(all, value.(*Class))
		return true
	})
	return all
}

// Class returns the entry of a class, for a call that begins at now. It makes a missing entry.
func (m *Method) Class(name string, now time.Time) *Class {
	if len(name) > maxClassName {
		name = strings.ToValidUTF8(name[:maxClassName], "")
	}
	at := now.Sub(m.Target.registry.origin)
	c := find[Class](&m.classes.known, name)
	if c == nil {
		c = m.classes.add(m, name, at)
	}
	if used := int64(at / sweepEvery); c.used.Load() != used {
		c.used.Store(used)
	}
	return c
}

// isFull reports whether there are MaxClasses classes besides OtherClass.
func (cs *classes) isFull() bool {
	count := cs.count.Load()
	return count > MaxClasses || count == MaxClasses && find[Class](&cs.known, OtherClass) == nil
}

func (m *Method) HasClasses() bool { return m.classes.count.Load() > 0 }

func (cs *classes) add(m *Method, name string, at time.Duration) *Class {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.isFull() && at > cs.swept+sweepEvery {
		cs.swept = at
		cs.known.Range(func(name, c any) bool {
			if at-time.Duration(c.(*Class).used.Load())*sweepEvery > idleAfter {
				cs.known.Delete(name)
				cs.count.Add(-1)
			}
			return true
		})
	}
	if cs.isFull() {
		name = OtherClass
	}
	if c := find[Class](&cs.known, name); c != nil { // another call was faster, or the class is OtherClass
		return c
	}
	c := &Class{Name: strings.Clone(name)}
	m.learn(m.Learner.Config(), &c.Learner) // not the call's, which an update may have replaced
	cs.known.Store(c.Name, c)
	cs.count.Add(1)
	return c
}

func (cs *classes) stats(now time.Time) []stats.Class {
	var rows []stats.Class
	for _, c := range cs.all() {
		rows = append(rows, stats.Class{Class: c.Name, Learned: learned(&c.Learner, now)})
	}
	slices.SortFunc(rows, func(a, b stats.Class) int { return strings.Compare(a.Class, b.Class) })
	return rows
}
