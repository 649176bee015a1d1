package stream

// inspect tells the call what the user's functions say of its request, unless somebody waits for an answer to it already. No
// lock is held while they run.
func (c *clientStream) inspect(m any) {
	if c.inspected {
		return
	}
	c.inspected = true
	traits := c.call.TraitsOf(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.racing {
		return
	}
	c.call.SetTraits(traits)
	if plan, hedged := c.call.Plan(); hedged {
		plan.Detached, plan.LetGo = c.plan.Detached, c.plan.LetGo
		c.plan = plan
	}
}
