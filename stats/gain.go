package stats

import (
	"fmt"
	"math"
	"time"
)

// Gain is what hedging has gained for a method. It is measured on losers that run to their end: see hedge.WithFollowUp.
// It does not show what hedges do to the queues of servers, which hedge.WithControl does.
type Gain struct {
	// Over is the time that it covers: ten to twelve minutes, or more where calls are few. Calls is about how many calls that
	// could be hedged ended in it, and Followed how many losers were followed to their end.
	Over     time.Duration
	Calls    int64
	Followed int
	// Measured says that enough losers were followed, which are 30. Otherwise Unhedged is an estimate without an
	// interval, for which primaries that were cut short count as lower bounds, and what was saved is not known: Saved to
	// SavedNothing are 0.
	Measured bool

	// Percentile is the target percentile, 99 by default. Unhedged is the one without hedging, Hedged the one with hedging.
	Percentile float64
	Unhedged   Interval
	Hedged     time.Duration
	// Load is the number of hedges per call.
	Load float64

	// Saved is the time that hedging saved per call, and SavedPerHedge the same per hedge.
	Saved, SavedPerHedge time.Duration
	// Helped is the share of calls, 0 to 1, that hedging spared more than a twentieth of their time. SavedPerHelped is what
	// such a call saved on average, SavedP50 and SavedP90 are the percentiles of that.
	Helped                             float64
	SavedPerHelped, SavedP50, SavedP90 time.Duration
	// SavedNothing is the share of hedged calls, 0 to 1, that were not helped.
	SavedNothing float64
	// NothingToGain says that hedging has stepped down, because it shortens the target percentile by less than 5% and the one
	// ten times as far out by less than a quarter.
	NothingToGain bool
}

// String returns the gain as a sentence; empty while it is not measured.
func (g Gain) String() string {
	if !g.Measured {
		return ""
	}
	saved := "nothing"
	if g.Helped > 0 {
		saved = fmt.Sprintf("%v for each of %.1f%% of the calls", round(g.SavedPerHelped), 100*g.Helped)
	}
	return fmt.Sprintf("In the last %s hedging took p%g from %v (%v to %v) to %v, saved %s, and sent %.1f%% more of them.", minutes(g.Over),
		g.Percentile, round(g.Unhedged.Value), round(g.Unhedged.Low), round(g.Unhedged.High), round(g.Hedged), saved, 100*g.Load)
}

// minutes says how long a time is, to the minute.
func minutes(d time.Duration) string {
	switch n := math.Round(d.Minutes()); {
	case n < 2:
		return "minute"
	case n == 10:
		return "ten minutes"
	default:
		return fmt.Sprintf("%.0f minutes", n)
	}
}

// Control compares the calls of a method that may be hedged with those that hedge.WithControl leaves unhedged, over the last ten
// to eleven minutes. Latencies are those that callers saw.
type Control struct {
	// Hedgeable are the calls that may be hedged, whether they were or not, and Unhedged those of the control group.
	Hedgeable, Unhedged Group
	// SavedPerHedge is the time that all hedgeable calls together took less than as many of the control group would have,
	// divided by the hedges sent; below 0 where hedging made calls slower on average, and 0 while nothing is known.
	SavedPerHedge time.Duration
}

// Group is the latency of the calls of a group.
type Group struct {
	// Calls is how many of them ended.
	Calls int64
	// P50, P99 and P999 are their percentiles.
	P50, P99, P999 Interval
}

// Interval is an estimate and what it is certain within: 19 times in 20 the true value lies between Low and High, for calls
// that are independent of each other. Where slow calls come in bunches it is less certain than that. Low is 0, and High is 0,
// where too few calls are known to say.
type Interval struct {
	Value, Low, High time.Duration
}
