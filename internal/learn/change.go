package learn

import "github.com/grpchedge/hedge/stats"

// Change is a change in what was concluded: hedging stepped down or up, or the distribution of latencies changed.
type Change struct {
	DistributionChanged bool
	// Choice is the one by which hedging stepped down, or up. It is nil with DistributionChanged.
	Choice *stats.Choice
}

// note keeps a change until it can be told. Only the goroutine that computes calls it.
func (l *Learner) note(c Change) {
	if l.place.Changed != nil {
		l.changes = append(l.changes, c)
	}
}

// noteStep notes whether hedging has stepped down or up since it was last noted.
func (l *Learner) noteStep(c *stats.Choice) {
	if c.SteppedDown != l.noted {
		l.noted = c.SteppedDown
		l.note(Change{Choice: c})
	}
}
