package stream

// classify tells the call the class of its request, unless somebody waits for an answer to it already. The function that
// finds the class is the user's, so no lock is held while it runs.
func (c *clientStream) classify(m any) {
	if c.classified {
		return
	}
	c.classified = true
	class := c.call.ClassOf(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.racing {
		return
	}
	c.call.SetClass(class)
	if plan, hedged := c.call.Plan(); hedged {
		plan.Detached, plan.LetGo = c.plan.Detached, c.plan.LetGo
		c.plan = plan
	}
}
