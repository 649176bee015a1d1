package registry

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/snapshot"
)

// restore makes entries for the methods of a snapshot that the options select. The methods with the
// most calls come first, and half of the room is left to other methods. An unused entry is removed
// like any other.
func (r *Registry) restore(targets map[string]*snapshot.TargetKnowledge) {
	type known struct {
		target, method string
		calls          float64
		*snapshot.MethodKnowledge
	}
	var all []known
	for target, t := range targets {
		for name, m := range t.Methods {
			all = append(all, known{target, name, m.Primaries.Total(), m})
		}
	}
	slices.SortFunc(all, func(a, b known) int {
		return cmp.Or(cmp.Compare(b.calls, a.calls), cmp.Compare(a.target, b.target), cmp.Compare(a.method, b.method))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.config.Load()
	for _, k := range all {
		if r.entries.len() >= c.MaxMethods/2 {
			return
		}
		if selected, _ := c.Selects(k.method); !selected {
			continue
		}
		t := r.addTarget(k.target)
		t.expected.Store(targets[k.target].CallsPerSecond)
		m := r.newMethod(t, strings.Clone(k.method))
		m.Learner.TakeOver(k.Knowledge)
		m.classes.restore(k.Classes)
		// Restored methods that were never called are removed first, the methods with the fewest
		// calls before the others.
		m.entry = entry{list: &r.entries.fresh, element: r.entries.fresh.PushFront(m)}
	}
}

// First returns the estimate of a method or class for a call that has found none: see
// learn.Learner.First. The first such call of a restored target fills its bucket for the expected
// traffic.
func (t *Target) First(l *learn.Learner, now time.Time) *learn.Estimate {
	if t.expected.Load() > 0 {
		t.Budget.Expect(now, t.expected.Swap(0))
	}
	return l.First(now)
}

// rate estimates the target's calls per second; 0 if there are too few calls.
func (r *Registry) rate(t *Target, now time.Time) float64 {
	if expected := t.expected.Load(); expected > 0 {
		return expected // restored, and not called
	}
	held, percent := t.Budget.Balance(now), r.config.Load().ForTarget(t.Name).BudgetPercent
	if held.Burst <= 1 || percent == 0 {
		return 0
	}
	return held.PerSecond / (percent / 100)
}

// restore keeps the knowledge of the classes with the most calls until they are used.
func (cs *classes) restore(known map[string]learn.Knowledge) {
	names := slices.SortedFunc(maps.Keys(known), func(a, b string) int {
		return cmp.Or(cmp.Compare(known[b].Primaries.Total(), known[a].Primaries.Total()), cmp.Compare(a, b))
	})
	cs.restored = map[string]learn.Knowledge{}
	for _, name := range names[:min(len(names), MaxClasses+1)] {
		cs.restored[strings.Clone(name)] = known[name]
	}
}

// WriteSnapshot writes the knowledge of every method, for another registry to restore. It collects
// one target at a time, so that the whole snapshot is never in memory.
func (r *Registry) WriteSnapshot(to io.Writer) error {
	methods := map[string][]*Method{} // by target
	if r != nil {
		r.mu.Lock()
		for _, m := range r.entries.all() {
			methods[m.Target.Name] = append(methods[m.Target.Name], m)
		}
		r.mu.Unlock()
	}
	w := snapshot.Writer{To: to}
	for _, target := range slices.Sorted(maps.Keys(methods)) {
		known := &snapshot.TargetKnowledge{
			Methods:        map[string]*snapshot.MethodKnowledge{},
			CallsPerSecond: r.rate(methods[target][0].Target, time.Now()),
		}
		for _, m := range methods[target] {
			if k := m.knowledge(time.Now()); len(k.Primaries) > 0 {
				known.Methods[m.Name] = k
			}
		}
		if len(known.Methods) == 0 {
			continue
		}
		if err := w.Target(target, known); err != nil {
			return err
		}
	}
	return w.Close()
}

func (m *Method) knowledge(now time.Time) *snapshot.MethodKnowledge {
	known := &snapshot.MethodKnowledge{Knowledge: m.Learner.Knowledge(now), Classes: map[string]learn.Knowledge{}}
	m.classes.mu.Lock()
	maps.Copy(known.Classes, m.classes.restored)
	m.classes.mu.Unlock()
	for _, c := range m.classes.all() {
		if k := c.Learner.Knowledge(now); len(k.Primaries) > 0 {
			known.Classes[c.name] = k
		}
	}
	return known
}
