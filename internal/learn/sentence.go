package learn

import (
	"fmt"
	"math"
	"time"

	"github.com/grpchedge/hedge/stats"
)

// Stats returns the choice that is in force, with its sentences; zero without one. e may be nil.
func (e *Estimate) Stats() stats.Choice {
	if e == nil || e.Choice == nil {
		return stats.Choice{}
	}
	c := e.Choice.Choice
	c.UnhedgedTailFrom, c.SteppedDown = e.Choice.unhedgedFrom(), e.Choice.WhyDown()
	return c
}

// unhedgedFrom returns what the unhedged tail was estimated from.
func (c *Choice) unhedgedFrom() string {
	if c.CutShort == 0 {
		return "primaries, none of them cut short"
	}
	return fmt.Sprintf("primaries, %.1f%% of them cut short: a lower bound where requests differ", 100*c.CutShort)
}

// WhyDown returns why hedging has stepped down; empty if it has not.
func (c *Choice) WhyDown() string {
	switch c.Down {
	case LittleToGain:
		return fmt.Sprintf("hedging would make the tail %v instead of %v: too little to pay for", round(c.PredictedTail), round(c.UnhedgedTail))
	case HedgesLose:
		if c.RecentlyHedged == 0 {
			return "hedges were no faster than waiting before latencies changed, and none has been sent since"
		}
		return fmt.Sprintf("hedges answered %.0f%% of hedged calls where %.0f%% were predicted: a second attempt is no faster than waiting",
			100*c.MeasuredWins, 100*c.PredictedWins)
	}
	return ""
}

// round rounds a duration to three significant digits.
func round(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	unit := math.Pow(10, math.Floor(math.Log10(float64(d)))-2)
	return time.Duration(math.Round(float64(d)/unit) * unit)
}
