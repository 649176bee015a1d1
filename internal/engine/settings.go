package engine

import (
	"github.com/grpchedge/hedge/internal/settings"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/learn"
)

// configuration is a Config and what follows from it for every method. It never changes: an update replaces it.
type configuration struct {
	settings.Config
	learning *learn.Config
}

// terms are what a configuration says about one method of one target. They never change. A call uses those that were in
// force when it began until it ends.
type terms struct {
	settings.Ruled
	under *configuration // what they were made from

	learning  *learn.Config
	selected  bool                    // the options select it for hedging
	described bool                    // false if it is not selected because its descriptor is missing
	onlyReads bool                    // NO_SIDE_EFFECTS or WithReadOnlyMethods
	policy    *settings.HedgingPolicy // the service config's; nil: none
	throttle  *throttle               // the target's; nil: none
	groups    *groups                 // nil without a control group
	classes   *classes                // of requests; nil without a class function
	own       *budget.Bucket          // of the method alone; nil: none
}

// configure completes a Config.
func (e *Engine) configure(c settings.Config) *configuration {
	made := &configuration{Config: c}
	made.learning = made.Config.LearnConfig(&e.pace)
	return made
}

// settingsNow returns the settings of the method that are in force.
func (m *method) settingsNow(e *Engine) *terms {
	if s := m.settings.Load(); s.under == e.config.Load() {
		return s
	}
	return m.settle(e)
}

// settle makes the settings of the method anew after an update.
func (m *method) settle(e *Engine) *terms {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.config.Load()
	if s := m.settings.Load(); s.under == c { // another call was faster
		return s
	}
	s := m.resolve(c)
	m.relearn(s.learning)
	m.settings.Store(s)
	return s
}

// resolve makes the settings of the method, and sets what its target has in common with other methods: the share of the
// budget and the limit of resets. e.mu must be held.
func (m *method) resolve(c *configuration) *terms {
	t := c.ForTarget(m.target.name)
	r := t.ForMethod(&c.Config, m.name)
	s := &terms{Ruled: r, under: c, learning: c.learning}
	if r.Config != &c.Config {
		s.learning = r.LearnConfig(c.learning.Pace)
		s.learning.BudgetPercent = min(s.BudgetPercent, t.BudgetPercent) // hedges are paid by both budgets
	}
	s.policy = s.PolicyOf(m.name)
	s.selected, s.described = s.Selects(m.name)
	s.onlyReads = s.ReadsOnly(m.name)
	s.throttle = m.target.throttleFor(s.Throttling())
	s.groups = m.groupsFor(s.Control)
	s.classes = m.classesOf(s.Class)
	m.target.budget.SetPercent(t.BudgetPercent)
	m.target.resets.SetLimit(t.ResetLimit, time.Now())
	if s.OwnBudget {
		s.own = m.ownBudget(s.BudgetPercent)
	}
	if s.policy != nil && s.learning.Auto { // the policy fixes the delays, so there is nothing to choose
		own := *s.learning
		own.Auto = false
		s.learning = &own
	}
	if r.Config != &c.Config { // it is the method's own, and nobody asks for rules that have been applied
		s.TargetRules, s.MethodRules = nil, nil
	}
	m.memory.Add(s.ruledBytes() - m.settings.Load().ruledBytes())
	return s
}

// settingsBytes is what the settings of one method take at most, with what is learned under them.
const settingsBytes = int64(unsafe.Sizeof(terms{}) + unsafe.Sizeof(learn.Config{}) + unsafe.Sizeof(settings.HedgingPolicy{}))

// ruledBytes is what the settings of a method take in addition if rules match it. They may be nil.
func (s *terms) ruledBytes() int64 {
	if s == nil || s.Config == &s.under.Config {
		return 0
	}
	return (int64(unsafe.Sizeof(settings.Config{}))+127)/128*128 + int64(cap(s.Applied))*int64(unsafe.Sizeof(""))
}

// ownBudget returns the method's own bucket, with the given share. It outlives updates under which the method has none.
func (m *method) ownBudget(percent float64) *budget.Bucket {
	if m.own != nil {
		m.own.SetPercent(percent)
		return m.own
	}
	m.memory.Add(int64(unsafe.Sizeof(budget.Bucket{})))
	m.own = budget.New(percent)
	return m.own
}

// groupsFor returns the groups for a control group of so many percent: those there are, if theirs is that.
func (m *method) groupsFor(percent float64) *groups {
	if old := m.settings.Load(); old != nil {
		if old.Control == percent {
			return old.groups
		}
		old.groups.release()
	}
	return newGroups(percent/100, &m.memory)
}

// relearn has the method and its classes learn under another configuration.
func (m *method) relearn(c *learn.Config) {
	m.learner.Configure(c)
	m.classes.Load().relearn(c)
}
