package knee

import (
	"math"

	"github.com/grpchedge/hedge/sketch"
)

const (
	enough   = 50  // calls before, below which nothing can be told
	fewest   = 12  // calls since
	most     = 0.5 // a difference that is worth forgetting what was known
	some     = 0.15
	unlikely = 1e-7

	few      = 5    // calls, below which no difference from what was taken over is too large for chance
	doubtful = 1e-4 // as unlikely, which is for as long as a method is called, for one that is new
)

// Changed reports whether the calls since a moment follow another distribution than those before it, so that what was learned
// before is of no use any more. The difference, as in the test of Kolmogorov and Smirnov, must be large enough to matter, and
// larger than chance makes it in one of some millions of comparisons of independent calls.
//
// Half of all calls must be concerned: a backend among several that stalls for a second now and then is part of the
// distribution, and what there is hedging for. Where a change was found lately, what is left of the calls before it may
// be few, so that less will do.
func Changed(before, since *sketch.Distribution, lately bool) bool {
	if before.Total() < enough || since.Total() < fewest {
		return false
	}
	matters := most
	if lately {
		matters = some
	}
	slower, faster := sketch.Distance(before.Survival(), since.Survival())
	return max(slower, faster) > max(matters, byChanceOf(before.Total(), since.Total(), unlikely))
}

// Contradicts reports whether calls follow another distribution than the one that was taken over. It is asked for
// fewer calls than [Changed], and for a smaller difference: what is taken over is not known to have ever been true here.
//
// The calls are those that have ended, so that of calls which began together the fastest are seen first. So all of them tell
// whether they take longer than was expected, and those that ended a while ago whether they take less.
func Contradicts(taken *sketch.Distribution, calls, earlier *sketch.Distribution) bool {
	expected := taken.Survival()
	slower, _ := sketch.Distance(expected, calls.Survival())
	_, faster := sketch.Distance(expected, earlier.Survival())
	return slower > credible(taken, calls) || faster > credible(taken, earlier)
}

// credible is the greatest difference that chance makes, or one that is too small to matter.
func credible(taken, calls *sketch.Distribution) float64 {
	observed, _ := calls.Count()
	if observed < few {
		return math.Inf(1)
	}
	return max(some, byChanceOf(taken.Total(), observed, doubtful))
}

// byChanceOf is the difference between n and m calls that chance exceeds with at most the given probability (Dvoretzky, Kiefer
// and Wolfowitz 1956, with Massart's constant).
func byChanceOf(n, m int64, probability float64) float64 {
	return math.Sqrt(math.Log(2/probability) / 2 * (1/float64(n) + 1/float64(m)))
}
