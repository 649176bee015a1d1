package engine

// TracksFailures reports whether failures of the call, and their trailers, must be reported: the target has a throttle, or
// the method a hedgingPolicy, by which a failure sends the next hedge.
func (c *Call) TracksFailures() bool { return c.tracksFailures }

// Succeeded counts the call's success for the throttle, once. The methods that record the latency of an answer call it. A
// stream calls it if its latency is not recorded.
func (c *Call) Succeeded() {
	if !c.tracksFailures || c.credited {
		return
	}
	if t := c.settings.throttle; t != nil {
		c.credited = true
		t.success()
	}
}
