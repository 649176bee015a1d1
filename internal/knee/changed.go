package knee

import (
	"math"

	"github.com/grpchedge/hedge/sketch"
)

// Changed reports whether the calls since a moment follow another distribution than those before it, so that what was learned
// before is of no use any more. It asks for a difference in distribution, as of Kolmogorov and Smirnov, that is large
// enough to matter and larger than chance would have it: in one of some millions of comparisons of calls that are
// independent of each other (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's constant).
//
// Half of all calls must be concerned: a backend among several that stalls for a second now and then is no change of distribution
// but part of it, and what there is hedging for. Where a change was found lately, what is left of the calls before it may
// be few, so that less will do.
func Changed(before, since *sketch.Distribution, lately bool) bool {
	n, m := float64(before.Total()), float64(since.Total())
	if n < enough || m < fewest {
		return false
	}
	chance := math.Sqrt(math.Log(2/unlikely) / 2 * (1/n + 1/m))
	matters := most
	if lately {
		matters = some
	}
	return sketch.Distance(before.Survival(), since.Survival()) > max(matters, chance)
}

const (
	enough   = 50  // calls before, below which nothing can be told
	fewest   = 12  // calls since
	most     = 0.5 // a difference that is worth forgetting what was known
	some     = 0.15
	unlikely = 1e-7
)
