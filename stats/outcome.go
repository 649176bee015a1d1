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
	// Poor says that the outcome is a poor answer, because no attempt had a better one: see hedge.WithAnswer. It is false for a call
	// that could have no hedge, because the function of hedge.WithAnswer is not asked about it.
	Poor bool
}
