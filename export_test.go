package hedge

import "time"

// HedgesKnown is how many hedges of a call's method are known of.
func HedgesKnown(c *Call) int64 { return c.method.learner.HedgeSnapshot(time.Now()).Total() }

// Record has the method of a call learn a latency, as of a hedge's or a primary's.
func Record(c *Call, d time.Duration, isHedge bool) {
	if isHedge {
		c.method.learner.HedgeAnswered(time.Now(), d)
	} else {
		c.method.learner.Observe(time.Now(), d)
	}
}

// Memory is what a scheduler counts as its own, in bytes.
func Memory(s *Scheduler) int64 { return s.memory.Bytes() }

// MakeTriggerPanic has the choice of the trigger panic, until the function returned is called.
func MakeTriggerPanic(s *Scheduler) (undo func()) {
	hedges := s.learning.MaxHedges
	s.learning.MaxHedges = 1000 // more than package knee has room for
	return func() { s.learning.MaxHedges = hedges }
}
