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
	Hedge int           // 1 for the first of the call
	Age   time.Duration // of the call
	// Destination is the target that the hedge was sent to. It is the call's own Target unless hedges
	// go elsewhere: see interceptor.HedgeTo.
	Destination string
}

// HedgeHeldBack reports that a hedge was due and was not sent.
type HedgeHeldBack struct {
	Call
	Hedge  int           // the number that the hedge would have had, 1 for the first of the call
	Age    time.Duration // of the call
	Reason Reason
}

// AttemptLost reports a loser, which is then canceled.
type AttemptLost struct {
	Call
	Attempt int           // 0 for the primary, n for hedge n
	Ran     time.Duration // from the start of the loser to the decision of the call
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

// Outcome is the outcome of one call: see hedge.Report.
type Outcome struct {
	Attempts int // sent: 1 for a call without a hedge
	// Winner is the attempt that decided the call: 0 for the primary, n for hedge n. It is Attempts if a
	// hedge panicked before it was sent.
	Winner int
	// Delay is the age at which the first hedge was due, and the time between further hedges. It is
	// 0 for a call that could not be hedged.
	Delay time.Duration
	// Reason is the reason why the last due hedge was not sent, or why the call could not be
	// hedged. It is empty if every due hedge was sent.
	Reason Reason
	// Rejected reports whether the outcome is a rejected answer: see hedge.WithAcceptable. It is
	// false for a call that could not be hedged: its answer is not judged.
	Rejected bool
}

// Reason is the reason why a hedge was not sent, or why a call could not be hedged. Later versions
// may add reasons.
type Reason string

const (
	// NoReason: every due hedge was sent, or none was due.
	NoReason Reason = ""

	// Reasons why a due hedge is not sent, described by the fields of [Counts] with these names.

	BudgetExhausted Reason = "budget exhausted"
	NotReady        Reason = "not ready"
	NotDrawn        Reason = "not drawn"
	Paused          Reason = "paused"
	Throttled       Reason = "throttled"
	PushedBack      Reason = "pushed back"
	DeadlineNear    Reason = "deadline near"
	Guarded         Reason = "guard"
	ResetsSpent     Reason = "resets spent"
	ClientBusy      Reason = "client busy"
	OfHedge         Reason = "on behalf of a hedge"

	// Reasons why a call cannot be hedged. [Paused] is one too.

	NotReplayable Reason = "not replayable"
	UnknownOption Reason = "unknown call option"
	EarlyHeaders  Reason = "early headers" // of Method.Unhedgeable only
	Warmup        Reason = "warmup"
	SwitchedOff   Reason = "off" // by the call option hedge.Off or by hedge.WithOff
	NotSelected   Reason = "not selected"
	NoDescriptor  Reason = "no descriptor"
	DryRun        Reason = "dry run"
	// InControlGroup: hedge.WithControl leaves the call unhedged.
	InControlGroup Reason = "control group"
	// NoHedgesConfigured: hedge.WithMaxHedges or hedge.WithBudgetPercent is 0.
	NoHedgesConfigured Reason = "no hedges configured"
	// NotServerStream: the call is client-streaming or bidirectional.
	NotServerStream Reason = "not a server stream"
)
