package hedge

import (
	"time"

	"github.com/grpchedge/hedge/internal/engine"
)

// Guard says whether and why hedges to a target are held back because they make calls fail. It is always on.
//
// RESOURCE_EXHAUSTED of any attempt halves the share of the budget that hedges may use, at once, and stops hedges for 5 s. The
// share grows back by a tenth a minute. If it comes without hedges too, which is counted for one to ten minutes, only what
// exceeds 1.25 times that rate has this effect. Messages that are too large do not count.
//
// If calls fail with other errors, a trial leaves hedges out in short periods, at most a twelfth of the time, and compares
// how many calls fail with and without hedges. If more fail with hedges, the share falls to 1/64, and the next trial has to
// prove less.
type Guard struct {
	// Share is the share of the budget that hedges may use now, 0 to 1. It is 1 where there is nothing to guard against.
	Share float64
	// Since is when hedges were first held back, and Reason a sentence that says why. They are zero and "" with nothing to
	// guard against.
	Since  time.Time
	Reason string
}

func newGuard(m engine.MethodStats) Guard {
	return Guard{Share: m.Guard.Share, Since: m.Guard.Since, Reason: m.Guard.Reason.String()}
}
