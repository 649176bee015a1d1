// Package snapshot reads and writes what schedulers have learned: the messages of proto/snapshotpb, with what learners know
// in them. A snapshot may come from anybody, so it is checked. Reading takes at most five times its
// bytes, these included, and 256 bytes for each target, method and class.
package snapshot

import (
	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/learn"
)

// Snapshot is what is known of targets, by name.
type Snapshot map[string]*Target

// Target is what is known of a target.
type Target struct {
	Methods        map[string]*Method // by their full names
	CallsPerSecond float64            // of all methods; 0: not known
	Calm           resets.Calm        // zero: there is none
}

// Method is what is known of a method: of all its requests, and of each class of them.
type Method struct {
	learn.Knowledge
	Classes map[string]learn.Knowledge // by name
}

// is notes the rate of calls and the calm of a target, if they say more than what is known.
func (t *Target) is(callsPerSecond float64, c resets.Calm) {
	t.CallsPerSecond = max(t.CallsPerSecond, callsPerSecond)
	if c.Until.After(t.Calm.Until) {
		t.Calm = c
	}
}

// Merge adds what another snapshot knows, by the number of calls.
func (s Snapshot) Merge(o Snapshot) {
	for name, from := range o {
		to := s.target(name)
		to.is(from.CallsPerSecond, from.Calm)
		for name, m := range from.Methods {
			to.add(name, m)
		}
	}
}

func (s Snapshot) target(name string) *Target {
	t := s[name]
	if t == nil {
		t = &Target{}
		s[name] = t
	}
	return t
}

func (t *Target) add(name string, m *Method) {
	to := t.Methods[name]
	if to == nil {
		if t.Methods == nil {
			t.Methods = map[string]*Method{}
		}
		t.Methods[name] = m
		return
	}
	to.Knowledge = to.Knowledge.Plus(m.Knowledge)
	for class, k := range m.Classes {
		to.addClass(class, k)
	}
}

func (m *Method) addClass(name string, k learn.Knowledge) {
	if m.Classes == nil {
		m.Classes = map[string]learn.Knowledge{}
	}
	if had, ok := m.Classes[name]; ok {
		k = had.Plus(k)
	}
	m.Classes[name] = k
}
