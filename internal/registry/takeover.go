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

// takeOver makes entries for the methods of a snapshot that this registry would learn of. Those with the most calls come
// first, and half of the room is left to methods that are not in it. An entry that no call uses leaves like every other.
func (r *Registry) takeOver(targets map[string]*snapshot.TargetKnowledge) {
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
		m.classes.takeOver(k.Classes)
		// Methods that were taken over and never called are removed first, those with the fewest known calls before the others.
		m.entry = entry{list: &r.entries.fresh, element: r.entries.fresh.PushFront(m)}
	}
}

// First returns the estimate of a method or class for a call that has found none: see learn.Learner.First. The first such
// call of a target fills its bucket for the traffic that is expected.
func (t *Target) First(l *learn.Learner, now time.Time) *learn.Estimate {
	if t.expected.Load() > 0 {
		t.Budget.Expect(now, t.expected.Swap(0))
	}
	return l.First(now)
}

// rate is how many calls a second the target has now; 0 if there are too few to tell.
func (r *Registry) rate(t *Target, now time.Time) float64 {
	if expected := t.expected.Load(); expected > 0 {
		return expected // nobody has called it
	}
	const seconds = 2 // of calls, which make the burst
	burst, percent := t.Budget.Balance(now).Burst, r.config.Load().ForTarget(t.Name).BudgetPercent
	if burst <= 1 || percent == 0 {
		return 0
	}
	return burst / (percent / 100) / seconds
}

// takeOver keeps what is known of classes until they are used. The classes with the most calls are kept.
func (cs *classes) takeOver(known map[string]learn.Knowledge) {
	names := slices.SortedFunc(maps.Keys(known), func(a, b string) int {
		return cmp.Or(cmp.Compare(known[b].Primaries.Total(), known[a].Primaries.Total()), cmp.Compare(a, b))
	})
	cs.taken = map[string]learn.Knowledge{}
	for _, name := range names[:min(len(names), MaxClasses+1)] {
		cs.taken[strings.Clone(name)] = known[name]
	}
}

// WriteSnapshot writes what is known of every method, for another registry to take over. It collects one target
// after the other, so that not all of it is in memory at once.
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
	maps.Copy(known.Classes, m.classes.taken)
	m.classes.mu.Unlock()
	for _, c := range m.classes.all() {
		if k := c.Learner.Knowledge(now); len(k.Primaries) > 0 {
			known.Classes[c.name] = k
		}
	}
	return known
}
