package stats

import "time"

// Choice is the current choice of the trigger hedge.Auto for a method, with its predicted effect.
// The tail is the percentile of hedge.TargetPercentile, p99 by default.
type Choice struct {
	// Delay is the age of a call at which its first hedge is due, and the time between further
	// hedges. Probability is the probability, 0 to 1, that a due hedge is sent. MaxHedges is the
	// maximum number of hedges per call.
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the tail without hedging, estimated from primaries, or 0 without an estimate;
	// [Gain] measures it. PredictedTail is the predicted tail with hedging. MeasuredTail is the
	// tail of the calls within the window, or, with a control group, of the calls in [Gain] that
	// may be hedged.
	UnhedgedTail, PredictedTail, MeasuredTail time.Duration
	// CutShort is the share of primaries, 0 to 1, that were cut short.
	CutShort float64
	// PredictedLoad is the predicted number of hedges per call. Counts.HedgeRate is the actual
	// number.
	PredictedLoad float64
	// Saved is the predicted share, 0 to 1, of the tail that hedging saves: of the area under the
	// latency-by-percentile curve from the median to p99.9, with both axes logarithmic; Auto
	// maximizes it. Kept is the share, 0 to 1, of earlier predictions at this delay that hedging
	// achieved; it scales the predictions, and is 1 until it is known.
	Saved, Kept float64
	// HeadersFirst reports whether Method.Unhedgeable is [EarlyHeaders], so that there is no
	// prediction: see hedge.WithWaitForMessage.
	HeadersFirst bool
}

// Forecast is the predicted effect of hedging a method with a given budget: see hedge.WithDryRun.
type Forecast struct {
	// BudgetPercent is the budget, in hedges per 100 calls.
	BudgetPercent float64
	// Delay, Probability and MaxHedges are the predicted choice of hedge.Auto: see [Choice].
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the target percentile of latency without hedging, and Tail the predicted one
	// with hedging.
	UnhedgedTail, Tail time.Duration
	// Load is the predicted number of hedges per call.
	Load float64
}
