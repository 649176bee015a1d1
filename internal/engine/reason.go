package engine

// reason is why a due hedge was not sent, or why a call can have none.
type reason uint8

const (
	noReason reason = iota

	// Of a hedge that is due. It is considered again later after the first three, guarded and resetsSpent.
	budgetExhausted
	notReady
	noOtherBackend
	notDrawn
	paused
	throttled
	pushedBack
	deadlineNear
	guarded
	resetsSpent
	ofHedge

	// Of a call.
	notReplayable
	learning
	off
	notSelected
	noDescriptor
	dryRun
	inControl
	switchedOff
	passedThrough
)

// reasonNames are the values of hedge.Reason.
var reasonNames = [...]string{
	noReason:        "",
	budgetExhausted: "budget exhausted",
	notReady:        "not ready",
	noOtherBackend:  "no other backend",
	notDrawn:        "not drawn",
	paused:          "paused",
	throttled:       "throttled",
	pushedBack:      "pushed back",
	deadlineNear:    "deadline near",
	guarded:         "guard",
	resetsSpent:     "resets spent",
	ofHedge:         "on behalf of a hedge",
	notReplayable:   "not replayable",
	learning:        "warmup",
	off:             "off",
	notSelected:     "not selected",
	noDescriptor:    "no descriptor",
	dryRun:          "dry run",
	inControl:       "control group",
	switchedOff:     "no hedges configured",
	passedThrough:   "not a server stream",
}

func (r reason) String() string { return reasonNames[r] }

// of returns the count of hedges that were not sent for the reason; nil for a reason that is not one of hedges.
func (r reason) of(s *Stats) *int64 {
	switch r {
	case budgetExhausted:
		return &s.BudgetExhausted
	case notReady:
		return &s.NotReady
	case noOtherBackend:
		return &s.NoOtherBackend
	case notDrawn:
		return &s.NotDrawn
	case paused:
		return &s.Paused
	case throttled:
		return &s.Throttled
	case pushedBack:
		return &s.PushedBack
	case deadlineNear:
		return &s.DeadlineNear
	case guarded:
		return &s.Guarded
	case resetsSpent:
		return &s.ResetsSpent
	case ofHedge:
		return &s.OfHedges
	}
	return nil
}
