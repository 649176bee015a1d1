package registry

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/settings"
)

// Configured describes the configuration in force and the last update that was refused.
type Configured struct {
	Options []string  // the texts of the options in force
	At      time.Time // when New or an update put them in force

	Refused   error // of the last update that was refused; nil: none was
	RefusedAt time.Time
}

// Configured returns the description of the configuration in force; the zero value for an empty
// registry.
func (r *Registry) Configured() Configured {
	if !r.Made() {
		return Configured{}
	}
	r.updating.Lock()
	defer r.updating.Unlock()
	c := r.configured
	c.Options = r.Config().Options
	return c
}

// Update replaces the configuration for calls that begin afterwards, and reports the changes. Once
// a method is known, another window or bound on methods is an error.
func (r *Registry) Update(c settings.Config) error {
	r.updating.Lock()
	old := r.config.Load()
	err := r.replace(c)
	if err == nil {
		r.configured.At, r.refused = time.Now(), ""
	}
	r.updating.Unlock()
	if err == nil {
		reportUpdate(old, &c)
	}
	return err
}

// replace puts c in force. r.updating must be held.
func (r *Registry) replace(c settings.Config) error {
	r.mu.Lock()
	methods, old := r.methods(), r.config.Load()
	var err error
	switch {
	case len(methods) == 0:
	case c.Window != old.Window:
		err = fmt.Errorf("hedge: Update: WithWindow(%v): must be %v, as in the first call", c.Window, old.Window)
	case c.MaxMethods != old.MaxMethods:
		err = fmt.Errorf("hedge: Update: WithMaxMethods(%d): must be %d, as in the first call", c.MaxMethods, old.MaxMethods)
	}
	if err == nil {
		r.config.Store(&c) // methods that are made from now on have it
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	for _, m := range methods {
		if m == r.other.Load() {
			m.update(offFor(&c))
		} else {
			m.update(c.For(m.Target.Name, m.Name))
		}
	}
	return nil
}

func (m *Method) update(to *settings.Settings) {
	m.Target.registry.mu.Lock()
	defer m.Target.registry.mu.Unlock()
	m.complete(to)
	m.Learner.Configure(&to.Config.Config)
	for _, c := range m.classes.all() { // one that is made at the same time begins with the method's configuration
		c.Learner.Configure(&to.Config.Config)
	}
	m.settings.Store(to)
}

// complete adds the state that belongs to settings of the method, and sets the budget's share and
// the reset limit of its target. r.mu must be held.
func (m *Method) complete(s *settings.Settings) {
	m.Target.Budget.SetPercent(s.Target.BudgetPercent)
	m.Target.Resets.SetLimit(s.Target.HedgeLimit)
	m.Target.throttle = guard.ThrottleFor(s.Throttling(), m.Target.throttle)
	s.Throttle = m.Target.throttle
	m.groups = control.For(s.Control/100, s.Target.Compared, m.groups)
	s.Groups = m.groups
	if s.OwnBudget || s.DryRun { // a dry run must not take from real hedges
		if m.own == nil { // otherwise kept across updates under which the method has none
			m.own = m.Target.registry.newBudget(s.BudgetPercent)
		}
		m.own.SetPercent(s.BudgetPercent)
		s.Budgets[0] = m.own
	}
	if s.Budgets[1] = m.Target.Budget; s.Unbudgeted() {
		s.Budgets = budget.Payers{}
	}
}

// Refuse records the error of an update that is refused, and reports it unless the update before
// was refused with the same error. If off is set, the update would have switched hedging off: that
// takes effect, with the other options as they were.
func (r *Registry) Refuse(err error, off bool) {
	if !r.Made() {
		return
	}
	r.updating.Lock()
	again := r.refused == err.Error()
	r.refused, r.configured.Refused, r.configured.RefusedAt = err.Error(), err, time.Now()
	old := r.config.Load()
	if c := *old; off && !c.Off {
		c.Off, c.Options = true, append(slices.Clip(c.Options), "WithOff(true)")
		// A new index, which keeps the configurations of targets: no pattern has changed.
		_ = c.Prepare()
		if r.replace(c) == nil { // nothing that an update must not change has changed
			r.configured.At = time.Now()
		}
	}
	now := r.config.Load()
	r.updating.Unlock()
	if !again {
		settings.Emit(old.Traces, settings.Notice{Level: slog.LevelError, Message: "update refused",
			Attrs: []any{"error", err.Error()}})
	}
	reportUpdate(old, now)
}

// reportUpdate reports the texts of options that an update has added and removed.
func reportUpdate(old, now *settings.Config) {
	added, removed := settings.Without(now.Options, old.Options), settings.Without(old.Options, now.Options)
	if len(added)+len(removed) == 0 || len(old.Traces) == 0 {
		return
	}
	record := settings.Notice{Level: slog.LevelInfo, Message: "options updated"}
	if len(added) > 0 {
		record.Attrs = append(record.Attrs, "added", added)
	}
	if len(removed) > 0 {
		record.Attrs = append(record.Attrs, "removed", removed)
	}
	settings.Emit(old.Traces, record)
}
