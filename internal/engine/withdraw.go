package engine

import "github.com/grpchedge/hedge/stats"

// decidedEarly is the SteppedDown of a method of which at least half of the calls count in EarlyHeaders.
const decidedEarly = "callers ask for the response headers first, and those come before the first message, so that no hedge can be sent: see stream.WaitForMessage"

// withdraw removes the predictions if headers come too early for hedges.
func withdraw(t *stats.Method) {
	if t.EarlyHeaderShare < 0.5 {
		return
	}
	t.Forecasts = nil
	withdrawChoice(&t.Choice)
	for i := range t.Classes {
		withdrawChoice(&t.Classes[i].Choice)
	}
}

func withdrawChoice(c *stats.Choice) {
	if *c != (stats.Choice{}) {
		c.PredictedTail, c.PredictedLoad, c.PredictedWins = c.UnhedgedTail, 0, 0
		c.SteppedDown = decidedEarly
	}
}
