package stats

import (
	"fmt"
	"math"
	"time"
)

// Gain is what hedging gains for a method, measured on a control group that is never hedged: see hedge.WithControl. Latencies are
// as callers saw them, so they include what hedges do to the queues of servers. An update that changes how the method is hedged begins
// a new comparison. One that only exchanges a function begins none.
type Gain struct {
	// Over is the time that it covers: periods of two minutes, 16 at most. Calls is the number of calls that ended in that time and
	// may be hedged, whether they were or not. Control is the number of calls of the control group.
	Over           time.Duration
	Calls, Control int64
	// Measured says that the intervals are known, which takes calls of both groups in at least five periods of two minutes, and
	// enough of them for the percentile. Until then values are what was seen so far, and intervals are 0.
	Measured bool

	// Percentile is the target percentile, 99 by default. Unhedged is its value in the control group, Hedged in the other calls.
	Percentile       float64
	Unhedged, Hedged Interval
	// Load is the number of hedges per call that may be hedged.
	Load float64
	// Saved is the time that hedging saved per call on average, and SavedPerHedge the same per hedge; below 0 where it made calls
	// slower.
	Saved, SavedPerHedge Interval
}

// Interval is a value and what it is certain within: 19 times in 20 the true one lies between Low and High. The interval is made
// from the differences between periods of two minutes, so it holds as well where slow calls come in bunches that are shorter. Low
// and High are 0 where too little is known to say.
type Interval struct {
	Value, Low, High time.Duration
}

// String returns the gain as a sentence; empty while it is not measured.
func (g Gain) String() string {
	if !g.Measured {
		return ""
	}
	within := func(i Interval) string {
		return fmt.Sprintf("%v (%v to %v)", round(i.Value), round(i.Low), round(i.High))
	}
	return fmt.Sprintf("In the last %.0f minutes p%g was %s with hedging, and %s in the control group, which is never hedged. "+
		"Hedging saved %s a call, %v a hedge, and sent %.1f%% more of them.",
		g.Over.Minutes(), g.Percentile, within(g.Hedged), within(g.Unhedged), within(g.Saved), round(g.SavedPerHedge.Value), 100*g.Load)
}

// round rounds a duration to three significant digits.
func round(d time.Duration) time.Duration {
	magnitude := math.Floor(math.Log10(max(math.Abs(float64(d)), 1)))
	return d.Round(time.Duration(math.Pow(10, max(magnitude-2, 0))))
}
