package engine

// TracksFailures reports whether failures of the call, and their trailers, must be reported: the target has a throttle, or
// the method a hedgingPolicy, by which a failure sends the next hedge.
func (c *Call) TracksFailures() bool { return c.tracksFailures }

// succeeded counts the call's success for the throttle, once.
func (c *Call) succeeded() {
	if c.tracksFailures && !c.credited && c.settings.throttle != nil {
		c.credited = true
		c.settings.throttle.success()
	}
}
