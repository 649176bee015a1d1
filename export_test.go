package hedge

import "time"

// TriggerDelay reads the trigger of a call's method, as Begin does.
func TriggerDelay(c *Call) (time.Duration, bool) { return c.method.trigger.delay() }
