package trigger

import (
	"math"
	"time"
)

// The constants that were tuned. docs/trigger.md names the world that each is for, and lists the
// constants of the price, which package budget holds.
const (
	rarest = 1e-3 // share of calls beyond the end of the tail, p99.9
	beyond = 4    // times the largest bound: the assumed latency of a call cut short there, by a deadline

	assumed   = 8               // weight of the prior, which trusts the prediction, in hedged calls
	unrelated = math.Ln2        // distance of ages, in logarithms, from which measured calls do not apply
	fadeTime  = 2 * time.Minute // in which the weight of a measured call falls to 1/e,
	fadeCalls = 8000            // or in which, in calls of the method: the slower of the two

	keptCalls = 1000 // primaries that are kept regardless of age
	asHedges  = 300  // hedges that are, and the weight of primaries in the estimate of hedge latency

	matters        = 0.5  // share of calls that a change must concern
	mattersInDoubt = 0.15 // the same for a lasting change, or for unsettled window steps after a change
	unsettled      = 4
	lasting        = 100 // calls, and a window, for which a change must last

	earlyFrom = 100  // calls to plan from. The quantile is too late if more than 1-Quantile are slow
	fades     = 1000 // own calls after which restored knowledge has no weight, and the most it counts for

	newCalls     = 50 // calls after which an estimate is recomputed,
	stale        = 9  // or intervals
	staleForNext = 4  // at the start of a call: the estimate may stem from a burst's fastest calls
)
