package knee

import (
	"math"

	"github.com/grpchedge/hedge/internal/sketch"
)

const (
	enough         = 50  // calls before, below which nothing can be told
	fewest         = 12  // calls since
	matters        = 0.5 // a difference that is worth forgetting what was known
	mattersInDoubt = 0.15
	unlikely       = 1e-7
)

// Changed reports whether the calls since a moment follow another distribution than those before it, so that what was learned
// before is of no use any more: they are slower, or faster. The difference, as in the test of Kolmogorov and Smirnov, must be large
// enough to matter, and larger than chance makes it in one of some millions of comparisons of independent calls (Dvoretzky, Kiefer
// and Wolfowitz 1956, with Massart's constant).
//
// Half of all calls must be concerned: a backend among several that stalls for a second now and then is part of the
// distribution, and what there is hedging for. Less will do where what is known is in doubt: it was taken over from elsewhere, or a
// change was found lately, and what is left of the calls before it may be few.
func Changed(before, since *sketch.Distribution, doubtful bool) (slower, faster bool) {
	n, m := float64(before.Total()), float64(since.Total())
	answers, _ := since.Count()
	if n < enough || m < fewest || answers == 0 { // nothing tells how long calls take that were all cut short
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
