package stats

// Reason is why a hedge was not sent, or why a call could have none. Later versions may have further ones.
type Reason string

const (
	// NoReason: every hedge that was due was sent. Perhaps none was due.
	NoReason Reason = ""

	// Reasons why a hedge that is due is not sent. They are described with the fields of stats.Counts of the same names. A hedge is
	// considered again later after the first three, Guarded and ResetsSpent.

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
	OfHedge         Reason = "on behalf of a hedge"

	// Reasons why a call has no hedge. [Paused] is one too.

	NotReplayable Reason = "not replayable"
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
