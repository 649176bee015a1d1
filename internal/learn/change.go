package learn

// Change is a change in what was concluded: hedging stepped down or up, or the distribution of latencies changed.
type Change struct {
	DistributionChanged bool
	// Choice is the one by which hedging stepped down, as Choice.Down says, or up. It is nil with DistributionChanged.
	Choice *Choice
}

// note keeps a change until it can be told. Only the goroutine that computes calls it.
func (l *Learner) note(c Change) {
	if l.place.Changed != nil {
		l.changes = append(l.changes, c)
	}
}

// noteStep notes whether hedging has stepped down or up since it was last noted.
func (l *Learner) noteStep(c *Choice) {
	if c.Down != l.noted {
		l.noted = c.Down
		l.note(Change{Choice: c})
	}
}
