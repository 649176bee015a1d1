package hedge

import (
	"time"

	"github.com/grpchedge/hedge/internal/engine"
)

// Guard says whether and why hedges to a target are held back because they make calls fail. It is on unless [WithoutGuard]
// turns it off.
//
// RESOURCE_EXHAUSTED of any attempt halves the share of the budget that hedges may use, at once, and stops hedges for 5 s.
// The share grows back by a tenth a minute. If it comes without hedges too, which is counted for one to ten minutes, only
// what exceeds 1.25 times that rate has this effect. Messages that are too large do not count.
//
// If calls fail with other errors, a trial leaves hedges out in short periods and compares how many calls fail with and
// without hedges. The periods take a sixteenth of the time at most, or a quarter where few hedges are sent anyway. If more
// calls fail with hedges, the share falls to 1/64. It grows back to half of what it was, and beyond that after half an hour
// or more.
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

// WithoutGuard turns off the guard that holds back hedges where they make calls fail: see [Guard]. Hedges are then sent
// whatever fails, as far as the budget pays for them and the throttle lets them pass.
func WithoutGuard() Option {
	return named("WithoutGuard", func(c *engine.Config) error {
		c.Guard = false
		return nil
	})
}
