package stats

import "time"

// Guard says whether and why hedges of a method are held back because they make calls fail. It is on unless hedge.WithoutGuard
// turns it off. It is about one method, or about all methods of the target if hedged calls of several fail.
//
// If a hedge fails with RESOURCE_EXHAUSTED and its primary does not, or ten calls fail so within seconds, the share of hedges
// that are sent is halved, and none is sent for 5 s. Then each further failure of this kind has the same effect. The share
// grows back in 45 s, or in 8 minutes at most if that happens again and again. If such failures go on for a minute without
// hedges, they have another reason: up to 1.25 times that rate is expected from then on, and has no effect.
//
// If calls fail with other errors, a trial leaves hedges out in short periods and compares how many calls fail with and
// without hedges. The periods take a sixteenth of the time at most, or a quarter where few hedges are sent anyway. If more
// calls fail with hedges, the share falls to 1/64, and grows back in 8 minutes.
type Guard struct {
	// Share is the share of due hedges that may be sent now, 0 to 1. It is 1 where there is nothing to guard against.
	Share float64
	// Since is when hedges were first held back, and Reason why. Both are zero with nothing to guard against.
	Since  time.Time
	Reason GuardReason
}

// GuardReason is why hedges are held back.
type GuardReason string

const (
	// GuardNone: they are not.
	GuardNone GuardReason = ""
	// GuardExhausted: hedges failed with RESOURCE_EXHAUSTED.
	GuardExhausted GuardReason = "exhausted"
	// GuardCounting: the same, and no hedge is sent until it is known how often calls fail so without hedges.
	GuardCounting GuardReason = "counting"
	// GuardGuilty: calls failed more often with hedges than without.
	GuardGuilty GuardReason = "guilty"
	// GuardTesting: calls fail, and short periods without hedges show whether hedges cause it.
	GuardTesting GuardReason = "testing"
)

// String is a sentence; "" for GuardNone.
func (r GuardReason) String() string {
	switch r {
	case GuardExhausted:
		return "hedges failed with RESOURCE_EXHAUSTED, so fewer are sent; their share grows back within minutes"
	case GuardCounting:
		return "hedges failed with RESOURCE_EXHAUSTED, and none is sent for some minutes, to count how often calls fail so without"
	case GuardGuilty:
		return "more calls failed with hedges than without, so fewer hedges are sent; their share grows back within minutes"
	case GuardTesting:
		return "calls fail, and short periods without hedges show whether hedges are the reason"
	}
	return string(r)
}
