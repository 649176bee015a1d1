package learn

import (
	"fmt"
	"math"
	"time"
)

// UnhedgedFrom returns what the unhedged tail was estimated from.
func (c *Choice) UnhedgedFrom() string {
	if c.CutShort == 0 {
		return "primaries, none of them cut short"
	}
	return fmt.Sprintf("primaries, %.1f%% of them cut short: a lower bound where requests differ", 100*c.CutShort)
}

// SteppedDown returns why hedging has stepped down; empty if it has not.
func (c *Choice) SteppedDown() string {
	switch c.Down {
	case LittleToGain:
		return fmt.Sprintf("hedging would make the tail %v instead of %v: too little to pay for", round(c.Plan.Tail), round(c.Unhedged))
	case HedgesLose:
		if c.Hedged == 0 {
			return "hedges were no faster than waiting before latencies changed, and none has been sent since"
		}
		return fmt.Sprintf("hedges answered %.0f%% of hedged calls where %.0f%% were predicted: a second attempt is no faster than waiting",
			100*c.Wins, 100*c.Plan.WinShare)
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
