package registry

import (
	"math"

	"github.com/grpchedge/hedge/stats"
)

// EarlyHeaders counts a stream that was decided by response headers well before its first message: see stats.Counts.
func (c *Counters) EarlyHeaders() {
	calls := c.Calls.Load()
	c.Update(func(s *stats.Counts) {
		s.EarlyHeaders++
		c.early = earlyShare{c.early.after(calls) + 1 - math.Exp(-1.0/earlyMemory), calls}
	})
}

// earlyShare is the share of calls decided by early headers, over about the last hundred calls.
type earlyShare struct {
	share float64
	at    int64 // the number of calls when share was computed
}

// earlyMemory is the number of calls over which the weight of one falls to 1/e.
const earlyMemory = 64

// after returns the share once there have been so many calls.
func (e *earlyShare) after(calls int64) float64 {
	return e.share * math.Exp(-float64(max(calls-e.at, 0))/earlyMemory)
}

func (c *Counters) earlyHeaderShare() float64 {
	calls := c.Calls.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.early.after(calls)
}

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
