package call

import (
	"cmp"
	"sync"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/stats"
)

// Inspects reports whether Inspect calls a function of the user.
func (c *Call) Inspects() bool { return needsClass(c) || c.payment.owes }

// needsClass reports whether the class of the request is still to be set. Calls of a control group
// have no class.
func needsClass(c *Call) bool {
	return c.Learns && c.settings.Class != nil && c.class == nil && c.group != control.Unhedged
}

// Inspect asks the functions of WithClass and WithCost about the call's request. The class then
// gives the delay and learns the call's latency. Once a method has classes, calls without a class
// share one. The budget earns the call's share of the cost, and each hedge pays the cost. Inspect
// must be called before the first hedge is due.
//
// The user's functions run without a lock. For a stream, the race may begin before they return. The
// stream then sets *late, which mu guards, and Inspect discards their results. A unary call passes
// nil for mu and late.
func (c *Call) Inspect(request any, mu sync.Locker, late *bool) {
	if !c.Inspects() {
		return
	}
	classify, price, class, cost := needsClass(c), c.payment.owes, "", 0.0
	if classify {
		class = c.settings.Class(c.Context, c.method.Name, request)
	}
	if price {
		if cost = c.settings.Cost(c.Context, c.method.Name, request); !budget.IsCost(cost) { // counts as 1
			c.method.Counters.Update(func(s *stats.Counts) { s.InvalidCosts++ })
		}
	}
	if mu != nil {
		mu.Lock()
		defer mu.Unlock()
		if *late {
			return
		}
	}
	if price {
		c.payment.setCost(c.Start, cost, c.Delay)
	}
	if !classify || class == "" && !c.method.HasClasses() {
		return
	}
	c.class = c.method.Class(cmp.Or(class, registry.OtherClass), c.Start)
	if c.estimate != nil && learnedDelay(c) {
		c.maxHedges = min(c.estimate.Hedges, c.settings.MaxHedges)
		reportUnhedged(c)
	}
}
