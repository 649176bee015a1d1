package budget

import (
	"math"
	"time"
)

const (
	// expected is how many tokens a bucket begins with at most, whatever traffic is expected.
	expected = 8
	// expectedCalls bounds the calls that it takes, where a call earns next to nothing.
	expectedCalls = 10_000
)

// Expect has the bucket begin as if so many calls a second had come in the two seconds before now: with the tokens that they
// earn, eight at most. It comes before the first call. So a target whose traffic is known is not without a token when its
// first calls are slow. A rate that is not above 0 is ignored.
func (b *Bucket) Expect(now time.Time, perSecond float64) {
	r := b.earning()
	if r == nil || !(perSecond > 0) {
		return
	}
	const (
		seconds = 2
		before  = (steps - 1) * step // so that all of the calls still count at now
	)
	calls := int(math.Min(min(perSecond*seconds, expectedCalls), math.Ceil(expected*token/float64(r.perUnit*unitsPerCall))))
	for n := range calls {
		b.Earn(now.Add(-before + time.Duration(n)*before/time.Duration(calls)))
	}
}
