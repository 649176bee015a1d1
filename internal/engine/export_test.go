package engine

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

// Memory is what an engine counts as its own, in bytes.
func Memory(e *Engine) int64 { return e.memory.Bytes() }

// MakeTriggerPanic has the choice of the trigger panic, until the function returned is called.
func MakeTriggerPanic(e *Engine) (undo func()) {
	hedges := e.learning.MaxHedges
	e.learning.MaxHedges = 1000 // more than package knee has room for
	return func() { e.learning.MaxHedges = hedges }
}
