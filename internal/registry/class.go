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
}

type Class struct {
	Name    string
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

// Class returns the entry of a class. It makes a missing entry.
func (m *Method) Class(name string) *Class {
	if len(name) > maxClassName {
		name = strings.ToValidUTF8(name[:maxClassName], "")
	}
	if c := find[Class](&m.classes.known, name); c != nil {
		return c
	}
	return m.classes.add(m, name)
}

func (m *Method) HasClasses() bool { return m.classes.count.Load() > 0 }

func (cs *classes) add(m *Method, name string) *Class {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if count := cs.count.Load(); count > MaxClasses || count == MaxClasses && find[Class](&cs.known, OtherClass) == nil {
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
