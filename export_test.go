package hedge

import "time"

// TriggerDelay reads the trigger of a call's method, as Begin does.
func TriggerDelay(c *Call) (time.Duration, bool) {
	if e := c.method.learner.current.Load(); e != nil {
		return e.delay, true
	}
	return 0, false
}

// Estimate identifies what is in force for the calls of a call's method.
func Estimate(c *Call) any { return c.method.learner.current.Load() }

// HedgesKnown is how many hedges of a call's method are known of.
func HedgesKnown(c *Call) int64 {
	w := c.method.learner.hedges.window.Load()
	if w == nil {
		return 0
	}
	observed, bounded := w.Snapshot(time.Now()).Count()
	return observed + bounded
}

// Record has the method of a call learn a latency, as of a hedge's or a primary's.
func Record(c *Call, d time.Duration, isHedge bool) {
	if isHedge {
		c.method.learner.hedges.record(&c.scheduler.config, time.Now(), d, true)
	} else {
		c.method.learner.window.Observe(time.Now(), d)
	}
}

// Choose makes a choice for the method of a call, on this goroutine. No other may.
func Choose(c *Call) { c.method.learner.choose(&c.scheduler.config, time.Now(), 100) }

// Memory is what a scheduler counts as its own, in bytes.
func Memory(s *Scheduler) int64 { return s.memory.Bytes() }

// MakeTriggerPanic has the choice of the trigger panic, until the function returned is called.
func MakeTriggerPanic(s *Scheduler) (undo func()) {
	hedges := s.config.maxHedges
	s.config.maxHedges = 1000 // more than package knee has room for
	return func() { s.config.maxHedges = hedges }
}
