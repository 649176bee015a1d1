package registry

import "github.com/grpchedge/hedge/stats"

// HeldBack counts a hedge that was not sent.
func (c *Counters) HeldBack(why stats.Reason) {
	c.Update(func(s *stats.Counts) {
		if n := heldBackFor(why, s); n != nil {
			*n++
		}
	})
}

// heldBackFor returns the count of hedges that were not sent for a reason; nil for a reason that is not one of hedges.
func heldBackFor(why stats.Reason, s *stats.Counts) *int64 {
	switch why {
	case stats.BudgetExhausted:
		return &s.BudgetExhausted
	case stats.NotReady:
		return &s.NotReady
	case stats.NoOtherBackend:
		return &s.NoOtherBackend
	case stats.NotDrawn:
		return &s.NotDrawn
	case stats.Paused:
		return &s.Paused
	case stats.Throttled:
		return &s.Throttled
	case stats.PushedBack:
		return &s.PushedBack
	case stats.DeadlineNear:
		return &s.DeadlineNear
	case stats.Guarded:
		return &s.Guarded
	case stats.ResetsSpent:
		return &s.ResetsSpent
	case stats.OfHedge:
		return &s.OfHedges
	}
	return nil
}
