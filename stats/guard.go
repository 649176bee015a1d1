package stats

import "time"

// Guard says whether and why hedges of a method are held back because they make calls fail. It is on unless hedge.WithGuard(false)
// turns it off. It is about one method, or about all methods of the target if hedged calls of several fail.
//
// RESOURCE_EXHAUSTED halves the share of hedges that are sent; other failures lead to a trial with short periods without hedges.
// The share grows back within eight minutes. docs/guard.md says how the guard decides.
type Guard struct {
	// Share is the share of due hedges that may be sent now, 0 to 1. It is 1 where there is nothing to guard against.
	Share float64
	// Since is when hedges were first held back, and Reason why. Both are zero with nothing to guard against.
	Since  time.Time
	Reason GuardReason
}

// GuardReason is why hedges are held back. String says each in a sentence.
type GuardReason string

const (
	GuardNone      GuardReason = "" // they are not
	GuardExhausted GuardReason = "exhausted"
	GuardCounting  GuardReason = "counting"
)

// String is a sentence; "" for GuardNone.
func (r GuardReason) String() string {
	switch r {
	case GuardExhausted:
		return "hedges failed with RESOURCE_EXHAUSTED, so fewer are sent; their share grows back within minutes"
	case GuardCounting:
		return "hedges failed with RESOURCE_EXHAUSTED, and none is sent for some minutes, to count how often calls fail so without"
	}
	return string(r)
}
