package stats

import (
	"context"
	"time"
)

// Call identifies the call of an event.
type Call struct {
	// Context is the caller's context. Tracing libraries keep the call's span in it.
	Context context.Context
	// Target, Method and Names are as in [Method].
	Target, Method string
	Names          Names
}

// HedgeSent reports that a hedge was sent.
type HedgeSent struct {
	Call
	// Hedge is the hedge's number, 1 for the first of the call.
	Hedge int
	// Age is how long the call had lasted.
	Age time.Duration
}

// HedgeHeldBack reports that a hedge was due and was not sent.
type HedgeHeldBack struct {
	Call
	// Hedge is the number that the hedge would have had, 1 for the first of the call.
	Hedge int
	// Age is how long the call had lasted.
	Age    time.Duration
	Reason Reason
}

// AttemptLost reports a loser, which is then canceled.
type AttemptLost struct {
	Call
	// Attempt is the loser's number: 0 for the primary, n for hedge n.
	Attempt int
	// Ran is the time from the start of the loser to the decision of the call: the work that
	// hedging wasted.
	Ran time.Duration
}

// CallDecided reports that a hedged call has ended.
type CallDecided struct {
	Call
	// Attempts is the number of attempts sent, 2 or more. Winner is the number of the attempt that
	// decided the call: 0 for the primary, n for hedge n.
	Attempts, Winner int
	// Delay is the delay that was in force, and Age the age of the call when it was decided.
	Delay, Age time.Duration
	// Err is the error returned to the caller, nil for an answer. It is nil if the winner panicked.
	Err error
}
