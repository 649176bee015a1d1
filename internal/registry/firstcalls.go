package registry

import (
	"slices"

	"github.com/grpchedge/hedge/internal/settings"
)

const (
	firstCallsSeen = 100     // of a target, before somebody is told that none was selected
	mostSeen       = 10      // methods that are named then
	selectedOnce   = 1 << 30 // the count, or what is above it, if a call was selected
)

// FirstCall notes that a call begins, and whether it is of a selected method. If none of the first calls was, it tells so, once.
func (t *Target) FirstCall(selected bool) {
	switch n := t.unselected.Load(); {
	case n >= selectedOnce:
	case selected:
		t.unselected.Store(selectedOnce)
	case n < firstCallsSeen && t.unselected.Add(1) == firstCallsSeen:
		c := t.registry.config.Load()
		settings.Tell(c.Traces, t.nothingSelected(c))
	}
}

// NothingSelected reports whether a target had at least firstCallsSeen calls, and none of a method that the options select.
func (r *Registry) NothingSelected(target string) (n settings.NothingSelected, nothing bool) {
	t := r.targetNamed(target)
	if t == nil {
		return n, false
	}
	if seen := t.unselected.Load(); seen < firstCallsSeen || seen >= selectedOnce {
		return n, false
	}
	return t.nothingSelected(r.config.Load()), true
}

func (t *Target) nothingSelected(c *settings.Config) settings.NothingSelected {
	why := "name the methods that only read with WithReadOnlyMethods"
	if c.ServiceConfig != nil && len(c.Methods) == 0 && len(c.ReadOnly) == 0 && !c.IdempotentOnly {
		why = "no service config has a hedgingPolicy for their methods"
	}
	n := settings.NothingSelected{Target: t.Name, Why: "none of the first 100 calls was selected for hedging: " + why}
	t.methods.Range(func(name, _ any) bool {
		n.Methods = append(n.Methods, name.(string))
		return true
	})
	slices.Sort(n.Methods)
	n.More = max(len(n.Methods)-mostSeen, 0)
	n.Methods = n.Methods[:len(n.Methods)-n.More]
	return n
}
