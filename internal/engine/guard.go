package engine

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// afford pays for hedge n, which is due at now, if the target's guard admits it. Otherwise it returns why not.
func (c *Call) afford(now time.Time, n int) reason {
	t := c.method.target
	// With a hedgingPolicy, the hedge may be the only hope of a call whose attempts have failed, and is not for the guard.
	guards := c.settings.Guard && (c.settings.policy == nil || c.failures == 0)
	if guards && !t.guard.Admits(now, t.budget) {
		return guarded
	}
	if !c.pay(now, n) {
		if guards {
			t.guard.GiveBack()
		}
		return budgetExhausted
	}
	return noReason
}

// Failing tells the guard that the call was made without a race, or its race was untouched, and failed with err.
func (c *Call) Failing(err error) {
	if c.method != nil {
		c.attemptFailed(err)
		c.callFailed(err)
	}
}

// attemptFailed tells the guard that an attempt of the call has failed with err.
func (c *Call) attemptFailed(err error) {
	if c.settings.Guard && exhausted(err) {
		t := c.method.target
		t.guard.Exhausted(time.Now(), t.budget)
	}
}

// callFailed tells the guard how the call ended for its caller. Answers are no failures, nor are calls that their caller has
// cancelled; a deadline that passes is one.
func (c *Call) callFailed(err error) {
	if !c.settings.Guard || answers.has(err) || status.Code(err) == codes.Canceled {
		return
	}
	t := c.method.target
	t.guard.Failed(time.Now(), t.budget)
}

// exhausted reports whether err says that something is used up that hedges use too. gRPC has the same code for a message
// that is too large, in its own words in each language, and that is no such thing.
func exhausted(err error) bool {
	if status.Code(err) != codes.ResourceExhausted {
		return false
	}
	message := status.Convert(err).Message()
	return !strings.Contains(message, "larger than max") && !strings.Contains(message, "exceeds maximum size")
}
