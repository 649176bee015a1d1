package hedge

import (
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/engine"
)

// Outcome is what happened to one call: see [Report].
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
	// Poor says that the outcome is a poor answer, because no attempt had a better one: see WithAnswer. It is false for a call
	// that could have no hedge, because the function of WithAnswer is not asked about it.
	Poor bool
}

// Report returns a call option that fills in outcome, for a unary call or a stream. Read it when the unary call has
// returned, or when the stream's first RecvMsg or Header has. A nil outcome is ignored. Calls that are in flight at the same
// time must not share an outcome. The option has no effect in [NewContext].
func Report(outcome *Outcome) grpc.CallOption {
	if outcome == nil {
		return grpc.EmptyCallOption{}
	}
	return engine.ReportOption{Fill: func(o engine.Outcome) {
		*outcome = Outcome{o.Attempts, o.Winner, o.Delay, Reason(o.Reason), o.Poor}
	}}
}
