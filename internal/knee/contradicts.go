package knee

import (
	"math"

	"github.com/grpchedge/hedge/sketch"
)

// Contradicts reports whether calls follow another distribution than the one that was taken over from somebody else's. It is asked for
// fewer calls than [Changed], and for a smaller difference: what is taken over is not known to have ever been true here.
//
// The calls are those that have ended, so that of calls which began together the fastest are seen first. That they take longer
// than was expected is therefore told from all of them, and that they take less from those that ended a while ago.
func Contradicts(taken *sketch.Distribution, calls, earlier *sketch.Distribution) bool {
	expected := taken.Survival()
	slower, _ := differences(expected, calls.Survival())
	_, faster := differences(expected, earlier.Survival())
	return slower > credible(taken, calls) || faster > credible(taken, earlier)
}

// credible is the greatest difference that chance makes, or one that is too small to matter.
func credible(taken, calls *sketch.Distribution) float64 {
	observed, _ := calls.Count()
	if observed < few {
		return math.Inf(1)
	}
	chance := math.Sqrt(math.Log(2/doubtful) / 2 * (1/float64(taken.Total()) + 1/float64(observed)))
	return max(some, chance)
}

const (
	few      = 5    // calls, below which no difference is too large for chance
	doubtful = 1e-4 // as unlikely is for a method that is looked at for as long as it is called, for one that is for a while
)

// differences returns by how much calls are more often slower than expected, and by how much less often.
func differences(expected, calls *sketch.Survival) (slower, faster float64) {
	for i := range sketch.Buckets {
		d := calls.Beyond(i) - expected.Beyond(i)
		slower, faster = max(slower, d), max(faster, -d)
	}
	return slower, faster
}
