package hedge

import "time"

// TriggerDelay reads the trigger of a call's method, as Begin does.
func TriggerDelay(c *Call) (time.Duration, bool) { return c.method.learner.due() }

// Estimate identifies what is in force for the calls of a call's method.
func Estimate(c *Call) any { return c.method.learner.current.Load() }
