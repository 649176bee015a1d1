package stats

import "time"

// Choice is what the trigger hedge.Auto has chosen for a method, and the effect that it predicts. The tail is the percentile that
// hedge.TargetPercentile sets, p99 by default.
type Choice struct {
	// Delay is the age at which a call gets its first hedge, and the time from each hedge to the next. Probability is the
	// probability with which a hedge that is due is sent, 0 to 1. MaxHedges is the most hedges of one call.
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is an estimate of the tail without hedging, from primaries; 0 without an estimate. [Gain] measures it.
	// PredictedTail is the predicted tail with hedging. MeasuredTail is the tail of the calls within the window, or, with a control
	// group, of the calls in [Gain] that may be hedged.
	UnhedgedTail, PredictedTail, MeasuredTail time.Duration
	// CutShort is the share of the primaries, 0 to 1, that were cut short.
	CutShort float64
	// PredictedLoad is the predicted number of hedges per call. Compare it with Counts.HedgeRate.
	PredictedLoad float64
	// Saved is the predicted share, 0 to 1, of the tail that hedging saves: of the area under the latency-by-percentile curve from the
	// median to p99.9, both axes logarithmic. Kept is the share of what was predicted of hedges at this delay, 0 to 1, that was seen to be saved. It is 1 as
	// long as nothing is known, and the predictions go by it.
	Saved, Kept float64
	// HeadersFirst says that Method.Unhedgeable is [EarlyHeaders], so that nothing is predicted: see hedge.WithWaitForMessage.
	HeadersFirst bool
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
