package engine

// Heeds reports whether failures of the call are of interest, with their trailers: for a throttle, or because a failure
// sends the next hedge.
func (c *Call) Heeds() bool { return c.heeds }

// Succeeded counts the call's success for the throttle, once. Whatever books the latency of an answer does so by itself; a
// binding does where the latency says nothing.
func (c *Call) Succeeded() {
	if !c.heeds || c.credited {
		return
	}
	if t := c.method.target.throttle; t != nil {
		c.credited = true
		t.success()
	}
}
