package registry

import "github.com/grpchedge/hedge/stats"

// withdraw removes the predictions if headers come too early for hedges, in at least half of the calls.
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
		c.SteppedDown = stats.HeadersFirst
	}
}
