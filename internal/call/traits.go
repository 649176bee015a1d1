package call

import (
	"cmp"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/stats"
)

// Traits are what the user's functions say of a request: WithClass its class, and WithCost its cost.
type Traits struct {
	class string
	cost  float64
}

// Inspect tells the request of the call: see SetTraits.
func (c *Call) Inspect(request any) {
	if c.Inspects() {
		c.SetTraits(c.TraitsOf(request))
	}
}

// Inspects reports whether Inspect would ask a function.
func (c *Call) Inspects() bool { return classifies(c) || c.Payment.Owes }

// classifies reports whether the class of the request is of interest. It is not for a call of a control group, which is plain.
func classifies(c *Call) bool {
	return c.Learns && c.settings.Class != nil && c.class == nil && c.Group != feature.Unhedged
}

// TraitsOf asks the user's functions about a request. It may be called at any time, if the call inspects its request.
func (c *Call) TraitsOf(request any) Traits {
	var t Traits
	if classifies(c) {
		t.class = c.settings.Class(c.Context, c.Method, request)
	}
	if c.Payment.Owes {
		if t.cost = c.settings.Cost(c.Context, c.Method, request); !budget.IsCost(t.cost) { // which counts as 1
			c.method.Counters.Update(func(s *stats.Counts) { s.InvalidCosts++ })
		}
	}
	return t
}

// SetTraits sets the class and the cost of the call's request. From now on the class gives the delay, and learns the call's latency.
// Once a method has a class, calls without a name share one. The budget gets the call's share of the cost, and each hedge pays
// the cost. SetTraits is called before the first hedge is due, and no other method is called meanwhile.
func (c *Call) SetTraits(t Traits) {
	if c.Payment.Owes {
		c.Payment.SetCost(c.Start, t.cost)
	}
	if !classifies(c) || t.class == "" && !c.method.HasClasses() {
		return
	}
	c.class = c.method.Class(cmp.Or(t.class, registry.OtherClass), c.Start)
	c.Class = &c.class.Learner
	if c.Estimate != nil && c.estimate() {
		c.MaxHedges = min(c.Estimate.Hedges, c.settings.MaxHedges)
		reportUnhedged(c)
	}
}
