package registry

import (
	"slices"
	"sync/atomic"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

func (m *Method) Names() stats.Names { return *m.names.Load() }

// Settings are the settings of a method, with the state that belongs to them. They never change.
type Settings struct {
	settings.Settings
	Throttle *Throttle       // of the target; nil: none
	Groups   *control.Groups // nil: no control group
	Own      *budget.Bucket  // of the method alone, always in a dry run; nil: none
}

func (m *Method) Settings() *Settings { return m.settings.Load() }

// Unhedged returns the reason why the settings in force hedge no call of the method, as
// stats.Outcome would have it, or NoReason. counts are the method's: whether an HTTP request is
// selected depends on the request.
func (m *Method) Unhedged(counts *stats.Counts) stats.Reason {
	s := m.Settings()
	selected := s.Selected
	if s.HTTP {
		selected = (s.Selected || !s.Described) && (s.Named || counts.Calls == 0 || counts.NotSelected < counts.Calls)
	}
	switch {
	case s.Off:
		return stats.SwitchedOff
	case !selected && !s.Described:
		return stats.NoDescriptor
	case !selected:
		return stats.NotSelected
	case s.BudgetPercent == 0 || s.Policy == nil && s.MaxHedges == 0:
		return stats.NoHedgesConfigured
	case s.Control == 100:
		return stats.InControlGroup
	}
	return stats.NoReason
}

// Update replaces the configuration for calls that begin afterwards.
func (r *Registry) Update(c settings.Config) {
	r.updating.Lock()
	defer r.updating.Unlock()
	r.mu.Lock()
	r.config.Store(&c) // methods that are made from now on have it
	methods := slices.Clone(r.methods)
	r.mu.Unlock()
	for _, m := range methods {
		m.update(c.For(m.Target.Name, m.Name))
	}
}

func (m *Method) update(to *settings.Settings) {
	m.Target.registry.mu.Lock()
	defer m.Target.registry.mu.Unlock()
	s := m.complete(to)
	m.Learner.Configure(s.Learning)
	for _, c := range m.classes.all() { // one that is made at the same time begins with the method's configuration
		c.Learner.Configure(s.Learning)
	}
	m.settings.Store(s)
}

// complete adds the state that belongs to the settings of the method, and sets the budget's share
// and the reset limit of its target. r.mu must be held.
func (m *Method) complete(to *settings.Settings) *Settings {
	s := &Settings{Settings: *to}
	m.Target.Budget.SetPercent(s.Settings.Target.BudgetPercent)
	m.Target.Resets.SetLimit(s.Settings.Target.HedgeLimit)
	m.Target.throttle = throttleFor(s.Throttling(), m.Target.throttle)
	s.Throttle = m.Target.throttle
	m.groups = control.For(s.Control/100, s.Compared(), m.groups)
	s.Groups = m.groups
	if s.OwnBudget || s.DryRun { // a dry run must not take from real hedges
		if m.own == nil { // otherwise kept across updates under which the method has none
			m.own = m.Target.registry.newBudget(s.BudgetPercent)
		}
		m.own.SetPercent(s.BudgetPercent)
		s.Own = m.own
	}
	return s
}

// Traffic is the guard's measure of calls. A costly call of the target counts as several.
func (m *Method) Traffic() guard.Traffic {
	return guard.Traffic{Method: float64(m.Counters.Calls.Load()), Target: m.Target.Budget.Calls()}
}

// Throttle limits the hedges of a target while many of its attempts fail, by gRPC's retryThrottling:
// a failure takes a token, a success adds a ratio of one, and no hedge is sent unless more than half
// is left. A nil Throttle limits nothing. It is safe for concurrent use.
type Throttle struct {
	rpc.Throttle
	tokens atomic.Int64 // thousandths
}

// throttleFor returns the throttle for a configuration: old, if it has the same one.
func throttleFor(c *rpc.Throttle, old *Throttle) *Throttle {
	switch {
	case c == nil:
		return nil
	case old != nil && old.Throttle == *c:
		return old
	}
	t := &Throttle{Throttle: *c}
	t.tokens.Store(t.MilliTokens)
	return t
}

// Throttles reports whether no hedge may be sent.
func (t *Throttle) Throttles() bool { return t != nil && 2*t.tokens.Load() <= t.MilliTokens }

func (t *Throttle) Failed() { t.add(-1000) }

func (t *Throttle) Succeeded() { t.add(t.MilliRatio) }

func (t *Throttle) add(d int64) {
	for {
		old := t.tokens.Load()
		count := min(max(old+d, 0), t.MilliTokens)
		if count == old || t.tokens.CompareAndSwap(old, count) { // it is mostly full, and a success then writes nothing
			return
		}
	}
}

// Tokens returns the count and its maximum, in tokens; 0 without a throttle.
func (t *Throttle) Tokens() (tokens, most float64) {
	if t == nil {
		return 0, 0
	}
	return float64(t.tokens.Load()) / 1000, float64(t.MilliTokens) / 1000
}
