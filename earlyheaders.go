package hedge

import "math"

// EarlyHeaders says that the call, a stream, was decided by response headers that its caller had asked for, before its
// first message came. It is told before Ended.
func (c *Call) EarlyHeaders() {
	c.dry = false // no hedge could have been sent
	if c.method != nil {
		calls := c.method.counters.calls.Load()
		c.method.counters.update(func(s *Stats) {
			s.EarlyHeaders++
			c.method.counters.early.add(calls)
		})
	}
}

// earlyShare is the share of calls decided by early headers, over about the last hundred calls.
type earlyShare struct {
	share float64
	at    int64 // the number of calls then
}

// earlyMemory is the number of calls over which the weight of one falls to 1/e.
const earlyMemory = 64

func (e *earlyShare) add(calls int64) {
	e.share = e.after(calls) + 1 - math.Exp(-1.0/earlyMemory)
	e.at = calls
}

// after returns the share once there have been so many calls.
func (e *earlyShare) after(calls int64) float64 {
	return e.share * math.Exp(-float64(max(calls-e.at, 0))/earlyMemory)
}

func (c *counters) earlyHeaderShare() float64 {
	calls := c.calls.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.early.after(calls)
}

// decidedEarly is why hardly any call is hedged of which half are decided by early headers.
const decidedEarly = "callers ask for the response headers first, and those come before the first message, so that no hedge can be sent: see stream.WaitForMessage"

// withdraw takes back what is predicted for hedges that are never due.
func (t *TargetStats) withdraw() {
	if t.EarlyHeaderShare < 0.5 {
		return
	}
	t.Forecasts = nil
	if c := &t.Choice; *c != (Choice{}) {
		c.PredictedTail, c.PredictedLoad, c.PredictedWins = c.UnhedgedTail, 0, 0
		c.SteppedDown = decidedEarly
	}
}
