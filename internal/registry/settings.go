package registry

import (
	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

func (m *Method) Names() stats.Names { return *m.names.Load() }

// ConfigOf returns the configuration of a method, with its rules applied.
func (r *Registry) ConfigOf(target, method string) settings.Config {
	if m := r.targetNamed(target).find(method); m != nil {
		return *m.Settings().Config
	}
	return r.Config()
}

// Settings are the settings of a method, with the state that belongs to them. They never change. A
// call keeps its settings, which were in force when it began.
type Settings struct {
	settings.Settings
	Throttle *Throttle       // of the target; nil: none
	Groups   *control.Groups // nil: no control group
	Own      *budget.Bucket  // of the method alone, always in a dry run; nil: none
}

func (m *Method) Settings() *Settings { return m.settings.Load() }

// Update replaces the configuration for calls that begin afterwards.
func (r *Registry) Update(c settings.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config.Store(&c)
	for _, m := range r.methods {
		s := m.resolve(&c)
		m.Learner.Configure(s.Learning)
		for _, c := range m.classes.all() { // one that is made at the same time begins with the method's configuration
			c.Learner.Configure(s.Learning)
		}
		m.settings.Store(s)
	}
}

// none are the settings that a new method has until its first resolve. They have nothing to carry
// over.
var none = &Settings{Settings: settings.Settings{Config: &settings.Config{}}}

// resolve makes the settings of the method, and sets the budget's share and the reset limit of its
// target. r.mu must be held.
func (m *Method) resolve(c *settings.Config) *Settings {
	t, old := c.ForTarget(m.Target.Name), m.settings.Load()
	s := &Settings{Settings: *c.For(t, m.Name, &m.Target.registry.pace)}
	m.Target.Budget.SetPercent(t.BudgetPercent)
	m.Target.Resets.SetLimit(t.ResetLimit)
	m.Target.throttle = throttleFor(s.Throttling(), m.Target.throttle)
	s.Throttle = m.Target.throttle
	s.Groups = control.For(s.Control/100, s.Compared(), old.Groups)
	s.Own = m.ownBudget(&s.Settings)
	return s
}

// Traffic is the guard's measure of calls. A costly call of the target counts as several.
func (m *Method) Traffic() guard.Traffic {
	return guard.Traffic{Method: float64(m.Counters.Calls.Load()), Target: m.Target.Budget.Calls()}
}

// ownBudget returns the method's own bucket, if a rule gives it one or in a dry run, which must not
// take from real hedges. The bucket is kept across updates under which the method has none.
func (m *Method) ownBudget(s *settings.Settings) *budget.Bucket {
	if !s.OwnBudget && !s.DryRun {
		return nil
	}
	if m.own == nil {
		m.own = m.Target.registry.newBudget(s.BudgetPercent)
	}
	m.own.SetPercent(s.BudgetPercent)
	return m.own
}
