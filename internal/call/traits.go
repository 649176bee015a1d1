package call

import (
	"cmp"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/stats"
)

// Traits are the class of a request by WithClass, and its cost by WithCost.
type Traits struct {
	class string
	cost  float64
}

// Inspect sets the traits of the call's request: see SetTraits.
func (c *Call) Inspect(request any) {
	if c.Inspects() {
		c.SetTraits(c.TraitsOf(request))
	}
}

// Inspects reports whether Inspect calls a function of the user.
func (c *Call) Inspects() bool { return classifies(c) || c.payment.Owes }

// classifies reports whether the class of the request is still to be set. Calls of a control group
// have no class.
func classifies(c *Call) bool {
	return c.Learns && c.settings.Class != nil && c.class == nil && c.group != control.Unhedged
}

// TraitsOf calls the user's functions for a request. It may be called at any time, if Inspects
// returns true.
func (c *Call) TraitsOf(request any) Traits {
	var t Traits
	if classifies(c) {
		t.class = c.settings.Class(c.Context, c.Method, request)
	}
	if c.payment.Owes {
		if t.cost = c.settings.Cost(c.Context, c.Method, request); !budget.IsCost(t.cost) { // which counts as 1
			c.method.Counters.Update(func(s *stats.Counts) { s.InvalidCosts++ })
		}
	}
	return t
}

// SetTraits sets the class and the cost of the call's request. The class then gives the delay and
// learns the call's latency. Once a method has classes, calls without a class share one. The budget
// earns the call's share of the cost, and each hedge pays the cost. SetTraits must be called before
// the first hedge is due, and not concurrently with other methods.
func (c *Call) SetTraits(t Traits) {
	if c.payment.Owes {
		c.payment.SetCost(c.Start, t.cost, c.Delay)
	}
	if !classifies(c) || t.class == "" && !c.method.HasClasses() {
		return
	}
	c.class = c.method.Class(cmp.Or(t.class, registry.OtherClass), c.Start)
	if c.estimate != nil && c.learnedDelay() {
		c.maxHedges = min(c.estimate.Hedges, c.settings.MaxHedges)
		reportUnhedged(c)
	}
}
