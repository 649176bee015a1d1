package knee

import (
	"math"

	"github.com/grpchedge/hedge/internal/sketch"
)

const (
	enough         = 50  // least number of calls before
	fewest         = 12  // least number of calls since
	matters        = 0.5 // least difference that justifies dropping the learned calls
	mattersInDoubt = 0.15
	unlikely       = 1e-7
)

// Changed reports whether the calls since a moment are slower or faster than the calls before it,
// so that the earlier calls no longer predict latency. As in the Kolmogorov-Smirnov test, it
// compares the largest difference of the distributions. The difference must exceed matters
// (mattersInDoubt if doubtful), and the bound that independent samples of one distribution exceed
// with probability unlikely (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's constant): by
// chance once in millions of comparisons.
//
// matters is half of all calls: a backend among several that stalls for a second now and then is
// part of the distribution, and the reason to hedge. mattersInDoubt is lower. The learned calls are
// in doubt if they were restored from elsewhere, or after a recent change, when few calls from
// before it may be left.
func Changed(before, since *sketch.Distribution, doubtful bool) (slower, faster bool) {
	n, m := float64(before.Total()), float64(since.Total())
	answers, _ := since.Count()
	if n < enough || m < fewest || answers == 0 { // calls that were all cut short do not show a latency
		return false, false
	}
	least := matters
	if doubtful {
		least = mattersInDoubt
	}
	least = max(least, math.Sqrt(math.Log(2/unlikely)/2*(1/n+1/m)))
	up, down := sketch.Distance(before.Survival(), since.Survival())
	return up > least, down > least
}
