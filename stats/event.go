package stats

import (
	"context"
	"time"
)

// Call is the call that an event is about.
type Call struct {
	// Context is the caller's context. Tracing libraries keep the span of the call in it.
	Context context.Context
	// Target, Method and Names are as in [Method].
	Target, Method string
	Names          Names
}

// HedgeSent is the event that a hedge was sent.
type HedgeSent struct {
	Call
	// Hedge is its number, 1 for the first of the call.
	Hedge int
	// Age is how long the call had lasted.
	Age time.Duration
}

// HedgeHeldBack is the event that a hedge was due and was not sent.
type HedgeHeldBack struct {
	Call
	// Hedge is the number that it would have had, 1 for the first of the call.
	Hedge int
	// Age is how long the call had lasted.
	Age    time.Duration
	Reason Reason
}

// AttemptLost is the event that another attempt of its call was faster. It is then cancelled.
type AttemptLost struct {
	Call
	// Attempt is its number: 0 for the primary, n for hedge n.
	Attempt int
	// Ran is how long it had been in flight when the call was decided. That is what hedging wasted.
	Ran time.Duration
}

// CallDecided is the event that a hedged call has ended.
type CallDecided struct {
	Call
	// Attempts is the number of attempts sent, 2 or more, and Winner the one whose outcome the caller gets: 0 for the primary,
	// n for hedge n.
	Attempts, Winner int
	// Delay is the delay that was in force, and Age how long the call had lasted when it was decided.
	Delay, Age time.Duration
	// Err is the error that the caller gets, nil for an answer. It is nil, too, if the winner panicked.
	Err error
}
