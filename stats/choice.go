package stats

import (
	"fmt"
	"math"
	"time"
)

// Choice is what the trigger hedge.Auto has chosen for a method, and the effect that it predicts. The tail is the percentile that
// hedge.TargetPercentile sets, p99 by default.
type Choice struct {
	// Delay is the age at which a call gets its first hedge, and the time from each hedge to the next. Probability is the
	// probability with which a hedge that is due is sent, 0 to 1. MaxHedges is the most hedges of one call. These three are
	// in force. The predictions below are for hedging that has not stepped down.
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is an estimate of the tail without hedging, from primaries; 0 without an estimate. [Gain] measures it.
	// PredictedTail is the predicted tail with hedging, and MeasuredTail the tail of the calls within the window.
	UnhedgedTail, PredictedTail, MeasuredTail time.Duration
	// CutShort is the share of the primaries, 0 to 1, that were cut short.
	CutShort float64
	// PredictedLoad is the predicted number of hedges per call. Compare it with Counts.HedgeRate.
	PredictedLoad float64
	// PredictedWins is the share of hedged calls, 0 to 1, that a hedge would answer if hedges were as fast as primaries.
	// MeasuredWins is the share of the last RecentlyHedged hedged calls that a hedge has answered. RecentlyHedged is at most
	// 100; if it is 0, so is MeasuredWins.
	PredictedWins, MeasuredWins float64
	RecentlyHedged              int
	// SteppedDown is why hardly any call is hedged. [Choice.WhySteppedDown] says it in a sentence.
	SteppedDown StepDown
}

// StepDown is why hedging has stepped down. Later versions may have further reasons.
type StepDown string

const (
	NotSteppedDown StepDown = ""
	LittleToGain   StepDown = "little to gain"
	HedgesLose     StepDown = "hedges lose"
	// HeadersFirst: callers of a stream ask for its headers, which come before the first message. See stream.WaitForMessage.
	HeadersFirst StepDown = "headers first"
)

// IsLowerBound reports whether the true unhedged tail may be longer than UnhedgedTail: some of the primaries that it was
// estimated from were cut short.
func (c Choice) IsLowerBound() bool { return c.CutShort > 0 }

// WhySteppedDown returns why hedging has stepped down, as a sentence without its full stop; empty if it has not.
func (c Choice) WhySteppedDown() string {
	switch {
	case c.SteppedDown == LittleToGain:
		return fmt.Sprintf("hedging would make the tail %v instead of %v: too little to pay for", round(c.PredictedTail), round(c.UnhedgedTail))
	case c.SteppedDown == HedgesLose && c.RecentlyHedged == 0:
		return "hedges were no faster than waiting before latencies changed, and none has been sent since"
	case c.SteppedDown == HedgesLose:
		return fmt.Sprintf("hedges answered %.0f%% of hedged calls where %.0f%% were predicted: a second attempt is no faster than waiting",
			100*c.MeasuredWins, 100*c.PredictedWins)
	case c.SteppedDown == HeadersFirst:
		return "callers ask for the response headers first, and those come before the first message, so that no hedge can be sent: see stream.WaitForMessage"
	}
	return string(c.SteppedDown)
}

// round rounds a duration to three significant digits.
func round(d time.Duration) time.Duration {
	magnitude := math.Floor(math.Log10(float64(max(d, 1))))
	return d.Round(time.Duration(math.Pow(10, magnitude-2)))
}

// Forecast is the predicted effect of hedging a method with a certain budget: see hedge.WithDryRun.
type Forecast struct {
	// BudgetPercent is the budget, in hedges per 100 calls.
	BudgetPercent float64
	// Delay, Probability and MaxHedges are what hedge.Auto would choose: see [Choice].
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the target percentile of calls without hedging, and Tail the predicted one with hedging.
	UnhedgedTail, Tail time.Duration
	// Load is the predicted number of hedges per call.
	Load float64
}
