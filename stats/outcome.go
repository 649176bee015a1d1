package stats

import "time"

// Outcome is what happened to one call: see hedge.Report.
type Outcome struct {
	// Attempts is the number of attempts sent: 1 for a call without a hedge.
	Attempts int
	// Winner is the attempt whose outcome the caller got: 0 for the primary, n for hedge n.
	Winner int
	// Delay is the age at which the first hedge was due, and the time from each hedge to the next. It is 0 for a call that
	// could have no hedge.
	Delay time.Duration
	// Reason is why the last hedge that was due was not sent, or why the call could have no hedge. It is empty if every hedge
	// that was due was sent.
	Reason Reason
	// Rejected says that the outcome is a rejected answer, because no attempt had a better one: see hedge.WithAcceptable. It is false
	// for a call that could have no hedge, because the function of hedge.WithAcceptable is not asked about it.
	Rejected bool
}

// Reason is why a hedge was not sent, or why a call could have none. Later versions may have further ones.
type Reason string

const (
	// NoReason: every hedge that was due was sent. Perhaps none was due.
	NoReason Reason = ""

	// Reasons why a hedge that is due is not sent. The fields of [Counts] with the same names describe them.

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

	// Reasons why a call has no hedge. [Paused] is one too.

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
	// NotServerStream: the call is a client-streaming or bidirectional one.
	NotServerStream Reason = "not a server stream"
)
