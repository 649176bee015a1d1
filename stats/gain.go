package stats

import (
	"fmt"
	"math"
	"time"
)

// Gain is the gain of hedging a method, measured against a control group that is never hedged: see
// hedge.WithControl. An update that changes the text of an option starts a new comparison; an
// update that only replaces a function does not.
type Gain struct {
	// Over is the time covered: periods of two minutes, at most 16. Calls is the number of calls
	// that ended in that time and may be hedged, with or without hedges. Control is the number of
	// calls of the control group.
	Over           time.Duration
	Calls, Control int64
	// Measured reports whether the intervals are known. They need calls of both groups in at least
	// five periods, and 500 calls of each group, or more if slow calls come in clusters. Until then
	// values are preliminary.
	Measured bool

	Unhedged, Hedged Interval // the p99 of the control group, and of the other calls
	Load             float64  // the extra load per call that may be hedged: see Counts.HedgeRate
	// Saved is the mean time that hedging saved per call, and SavedPerHedge the same per hedge.
	// They are negative if hedging made calls slower.
	Saved, SavedPerHedge Interval
}

// Interval is a value with its 95% confidence interval, Low to High; both are 0 if unknown. The
// interval accounts for slow calls in clusters shorter than two minutes.
type Interval struct{ Value, Low, High time.Duration }

// String returns the gain as a sentence, or "" until it is measured.
func (g Gain) String() string {
	if !g.Measured {
		return ""
	}
	interval := func(i Interval) string { return fmt.Sprintf("%v to %v", round(i.Low), round(i.High)) }
	return fmt.Sprintf("Last %.0f minutes: p99 was %v (95%% CI %s) with hedging, "+
		"%v (%s) in the unhedged control group. "+
		"Hedging saved %v (%s) per call, %v per hedge, for %.1f%% more calls.",
		g.Over.Minutes(), round(g.Hedged.Value), interval(g.Hedged),
		round(g.Unhedged.Value), interval(g.Unhedged),
		round(g.Saved.Value), interval(g.Saved), round(g.SavedPerHedge.Value), 100*g.Load)
}

// round rounds d to three significant digits.
func round(d time.Duration) time.Duration {
	magnitude := math.Floor(math.Log10(max(math.Abs(float64(d)), 1)))
	return d.Round(time.Duration(math.Pow(10, max(magnitude-2, 0))))
}
