package trigger

import (
	"math"
	"time"
)

// The constants that were tuned. docs/trigger.md names the world that each is for, and lists the
// constants of the price, which package budget holds.
const (
	// The tail of a method: to p99.9. Calls that are unanswered at the largest bound, where a
	// deadline ends them, count as if they took beyond times as long.
	rarest = 1e-3
	beyond = 4

	// assumed is the weight of the prior, which trusts the prediction, in hedged calls. Outcomes at
	// one age do not apply at another age that is further away than unrelated, in logarithms.
	assumed   = 8
	unrelated = math.Ln2

	// The weight of an outcome falls to 1/e in fadeTime or in fadeCalls calls of the method. The
	// slower of the two applies.
	fadeTime  = 2 * time.Minute
	fadeCalls = 8000

	// asHedges is the number of hedges that are kept regardless of age, and the weight of primaries,
	// in hedges, in the estimate of hedge latency. keptCalls is the number of primaries.
	asHedges  = 300
	keptCalls = 1000

	// A change of latency is one of this share of calls. The calls from before a change are in doubt
	// for unsettled steps of the window. A lasting change is one of a window and lasting calls.
	matters        = 0.5
	mattersInDoubt = 0.15
	unsettled      = 4
	lasting        = 100

	// earlyFrom is the least number of calls to plan from. Until then the quantile is used, which is
	// too late if the share of slow calls exceeds 1-Quantile.
	earlyFrom = 100
	// fades is the number of the learner's own calls after which restored knowledge has lost all of
	// its weight, and the most calls that it counts for.
	fades = 1000

	// An estimate is recomputed once newCalls calls have ended since the last, or after stale
	// intervals; at the start of a call after staleForNext, as the estimate may stem from a burst's
	// fastest calls.
	newCalls     = 50
	stale        = 9
	staleForNext = 4
)
