package stats

import "time"

// Outcome is the outcome of one call: see hedge.Report.
type Outcome struct {
	// Attempts is the number of attempts sent: 1 for a call without a hedge.
	Attempts int
	// Winner is the number of the attempt that decided the call: 0 for the primary, n for hedge n.
	Winner int
	// Delay is the age at which the first hedge was due, and the time between further hedges. It is
	// 0 for a call that could not be hedged.
	Delay time.Duration
	// Reason is the reason why the last due hedge was not sent, or why the call could not be
	// hedged. It is empty if every due hedge was sent.
	Reason Reason
	// Rejected reports whether the outcome is a rejected answer, because no attempt had a better
	// one: see hedge.WithAcceptable. It is false for a call that could not be hedged: its answer is
	// not judged.
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
	NoOtherBackend  Reason = "no other backend"
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
