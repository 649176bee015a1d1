package stats

import "time"

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
