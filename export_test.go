package hedge

import "time"

// HedgesKnown is how many hedges of a call's method are known of.
func HedgesKnown(c *Call) int64 { return c.method.learner.HedgeSnapshot(time.Now()).Total() }
