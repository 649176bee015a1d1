package trigger

import "time"

// The constants that were tuned. docs/trigger.md shows what is worse without each part.
const (
	rarest = 1e-3 // share of calls beyond the end of the tail, p99.9
	few    = 15   // least number of latencies that show a distribution

	fadeTime = 8 * time.Minute // in which the weight of a measured call falls to 1/e

	newCalls = 50 // calls after which an estimate is recomputed, an interval or more after the last one
	stale    = 9  // further intervals after which it is recomputed with fewer calls
)

// Constants, but TestParts takes parts out by setting them.
var (
	deadlineFactor = 4.0   // times the largest bound: the assumed latency of a call cut short there, by a deadline
	assumed        = 1.0   // weight of the prior, which trusts the prediction, in calls that hedges answered
	keptCalls      = 1000  // primaries that are kept regardless of age
	keptHedges     = 300.0 // hedges that are kept regardless of age, and the weight of primaries beside them
	matters        = 0.4   // share of calls that a change must concern

	staleForNext = int64(4) // stale, at the start of a call: the estimate may stem from a burst's fastest calls
)
