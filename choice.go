package hedge

import (
	"fmt"
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/learn"
)

// Choice is what the trigger [Auto] has chosen for a method, and the effect that it predicts. The tail is the percentile that
// [TargetPercentile] sets, p99 by default.
type Choice struct {
	// Delay is the age at which a call gets its first hedge, and the time from each hedge to the next. Probability is the
	// probability with which a hedge that is due is sent, 0 to 1. MaxHedges is the most hedges of one call. These three are
	// in force. The predictions below are for hedging that has not stepped down.
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the tail without hedging, PredictedTail the predicted tail with hedging, and MeasuredTail the tail of
	// the calls within the window.
	UnhedgedTail, PredictedTail, MeasuredTail time.Duration
	// UnhedgedTailFrom says what UnhedgedTail was estimated from, and whether it is a lower bound. With WithControl it is
	// measured.
	UnhedgedTailFrom string
	// PredictedLoad is the predicted number of hedges per call. Compare it with Stats.HedgeRate.
	PredictedLoad float64
	// PredictedWins is the share of hedged calls, 0 to 1, that a hedge would answer if hedges were as fast as primaries.
	// MeasuredWins is the share of the last RecentlyHedged hedged calls that a hedge has answered. RecentlyHedged is at most
	// 100; if it is 0, so is MeasuredWins.
	PredictedWins, MeasuredWins float64
	RecentlyHedged              int
	// SteppedDown is a sentence that says why hardly any call is hedged; empty if hedging has not stepped down.
	SteppedDown string
}

func newChoice(e *learn.Estimate) Choice {
	c := e.Choice
	if c == nil {
		return Choice{}
	}
	return Choice{
		Delay:         e.Delay,
		Probability:   e.Probability,
		MaxHedges:     e.Hedges,
		UnhedgedTail:  c.Unhedged,
		PredictedTail: c.Plan.Tail,
		MeasuredTail:  c.Measured,
		PredictedLoad: c.Plan.Load,
		PredictedWins: c.Plan.WinShare,
		MeasuredWins:  c.Wins,

		UnhedgedTailFrom: unhedgedFrom(c),

		RecentlyHedged: c.Hedged,
		SteppedDown:    steppedDown(c),
	}
}

// unhedgedFrom returns what the unhedged tail was estimated from.
func unhedgedFrom(c *learn.Choice) string {
	if c.CutShort == 0 {
		return "primaries, none of them cut short"
	}
	return fmt.Sprintf("primaries, %.1f%% of them cut short: a lower bound where requests differ", 100*c.CutShort)
}

// steppedDown returns why hedging has stepped down; empty if it has not.
func steppedDown(c *learn.Choice) string {
	switch c.Down {
	case learn.LittleToGain:
		return fmt.Sprintf("hedging would make the tail %v instead of %v: too little to pay for", round(c.Plan.Tail), round(c.Unhedged))
	case learn.HedgesLose:
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

// Forecast is the predicted effect of hedging a method with a certain budget: see [WithDryRun].
type Forecast struct {
	// BudgetPercent is the budget, in hedges per 100 calls.
	BudgetPercent float64
	// Delay, Probability and MaxHedges are what [Auto] would choose: see [Choice].
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the target percentile of calls without hedging, and Tail the predicted one with hedging.
	UnhedgedTail, Tail time.Duration
	// Load is the predicted number of hedges per call.
	Load float64
}

func newForecasts(of []learn.Forecast) []Forecast {
	var rows []Forecast
	for _, f := range of {
		rows = append(rows, Forecast{
			BudgetPercent: f.BudgetPercent,
			Delay:         f.Plan.Delay,
			Probability:   f.Plan.Probability,
			MaxHedges:     f.Plan.Hedges,
			UnhedgedTail:  f.Unhedged,
			Tail:          f.Plan.Tail,
			Load:          f.Plan.Load,
		})
	}
	return rows
}
