package engine

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// guardAdmits asks the target's guard whether a hedge that is due at now may be sent.
func (c *Call) guardAdmits(now time.Time) bool {
	t := c.method.target
	return t.guard.Admits(now, t.budget)
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
	if exhausted(err) {
		t := c.method.target
		t.guard.Exhausted(time.Now(), t.budget)
	}
}

// callFailed tells the guard how the call ended for its caller. Answers are no failures, nor are calls that their caller has
// cancelled; a deadline that passes is one.
func (c *Call) callFailed(err error) {
	if answers.has(err) || status.Code(err) == codes.Canceled {
		return
	}
	t := c.method.target
	t.guard.Failed(time.Now(), t.budget)
}

// exhausted reports whether err says that something is used up that hedges use too. gRPC has the same code for a message that is
// too large, in its own words in each language, and that is no such thing.
func exhausted(err error) bool {
	if status.Code(err) != codes.ResourceExhausted {
		return false
	}
	message := status.Convert(err).Message()
	return !strings.Contains(message, "larger than max") && !strings.Contains(message, "exceeds maximum size")
}
