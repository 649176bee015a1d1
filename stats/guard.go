package stats

import "time"

// Guard is the state of the guard, which holds back hedges that exhaust a rate limit. It describes
// the method, or all methods of the target if hedged calls of several methods fail. The guard is on
// unless hedge.WithGuard(false) turns it off.
//
// Each RESOURCE_EXHAUSTED that hedges may have caused halves the share of hedges that are sent. The
// share recovers within eight minutes. docs/guard.md describes the decision.
type Guard struct {
	// Share is the share of due hedges, 0 to 1, that may be sent. It is 1 if none is held back.
	Share float64
	// Since is the start of the reduction, and Reason its cause. Both are zero if Share is not
	// reduced.
	Since  time.Time
	Reason GuardReason
}

// GuardReason is the reason for holding hedges back.
type GuardReason string

const (
	GuardNone      GuardReason = "" // none is held back
	GuardExhausted GuardReason = "exhausted"
	GuardCounting  GuardReason = "counting"
)

// String returns a sentence, or "" for GuardNone.
func (r GuardReason) String() string {
	switch r {
	case GuardExhausted:
		return "hedges failed with RESOURCE_EXHAUSTED; their share recovers within minutes"
	case GuardCounting:
		return "hedges failed with RESOURCE_EXHAUSTED; none is sent for some minutes, to count failures without hedges"
	}
	return string(r)
}
