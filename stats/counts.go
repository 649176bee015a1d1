package stats

// Counts has counts of calls and hedges. hedge.Scheduler.Stats counts since the scheduler was made. No count ever
// falls, with one exception: Hedges and Hedged fall by one if the call ends between the decision to send a hedge and its
// sending.
type Counts struct {
	// Calls is the number of calls begun, without those in PassedThrough.
	Calls int64
	// Hedged is the number of calls for which at least one hedge was sent.
	Hedged int64
	// Hedges is the number of hedges sent.
	Hedges int64
	// HedgeWins and PrimaryWins count the hedged calls that ended with an answer, OK or a final status, by the attempt that
	// gave it. A hedged call that failed, or whose caller gave up, is in neither.
	HedgeWins, PrimaryWins int64
	// SameBackend is the number of hedges sent to a backend that an attempt of their call had used, because no other was
	// ready. Without the policy of package balancer it is 0.
	SameBackend int64
	// Repeated is the number of hedges that sent a call again, because its server had cut the connection after too many resets: see
	// [Resets]. They are in Hedges too.
	Repeated int64

	// The counts down to PassedThrough say why a hedge was not sent. A count of calls goes up when
	// a call begins. A count of hedges goes up when a hedge is due, at most once for each hedge and
	// reason. A hedge in BudgetExhausted, NotReady, NoOtherBackend, Guarded, ResetsSpent or
	// ClientBusy is considered again later while its call lasts.

	// Warmup is the number of calls begun while their method was being learned.
	Warmup int64
	// BudgetExhausted is the number of hedges that the budget did not pay for when they were due.
	BudgetExhausted int64
	// NotDrawn is the number of hedges that were left out at random, by the probability in Choice.
	NotDrawn int64
	// NotReady is the number of hedges that were due while the connection was not ready.
	NotReady int64
	// NoOtherBackend is the number of hedges that hedge.WithOtherBackendOnly held back, because the child policy returned no other
	// backend or the connection has no policy of package balancer.
	NoOtherBackend int64
	// DeadlineNear is the number of hedges that would probably have answered after the call's deadline.
	DeadlineNear int64
	// Paused is the number of calls begun while hedging was paused, and of hedges that came due then.
	Paused int64
	// OfHedges is the number of hedges not sent because their call was made on behalf of a hedge: see docs/configuration.md. The
	// call gets no more hedges.
	OfHedges int64
	// Off is the number of calls with the option hedge.Off or hedge.WithOff.
	Off int64
	// NotSelected is the number of calls of methods that the options of hedge.New do not select.
	NotSelected int64
	// NoDescriptor is the number of calls of methods that hedge.WithIdempotentOnly does not select because their descriptor is not
	// linked into the program. They are not in NotSelected.
	NoDescriptor int64
	// Throttled is the number of hedges not sent because at most half of the target's throttle tokens were left. The call
	// gets no more hedges.
	Throttled int64
	// Guarded is the number of hedges that were held back because hedges use up a rate limit: see [Guard].
	Guarded int64
	// PushedBack is the number of failed attempts with the trailer grpc-retry-pushback-ms, by which a server asks to wait
	// before the next attempt, or to send none.
	PushedBack int64
	// NotReplayable is the number of calls that cannot be hedged because their request or reply is
	// no protobuf message, or because of its size (see interceptor.Unary), and of streams whose
	// request was not complete when a hedge was due, or whose method has second messages too often:
	// see hedge.WithSingleRequest. Requests are examined, and counted here, only when a hedge is
	// due.
	NotReplayable int64
	// ResetsSpent is the number of hedges that were due when no reset was left for their losers: see [Resets].
	ResetsSpent int64
	// ClientBusy is the number of hedges that were due while this process was short of processor
	// time: on average its goroutines waited for a processor for more than a sixteenth of the
	// call's age (200 µs at least), or the hedge's timer fired that late (2 ms at least). The
	// answer may have arrived. Such a call teaches nothing.
	ClientBusy int64
	// DryRun is the number of calls that would have been hedged without hedge.WithDryRun. They are not in Hedged. Calls
	// that cannot be hedged are in NotReplayable, EarlyHeaders, NoOtherBackend, DeadlineNear or OfHedges instead, and hedges that would
	// not be sent in NotDrawn or BudgetExhausted. Hedges that a failure would have sent are not counted.
	DryRun int64
	// EarlyHeaders is the number of streams whose caller called Header first, and whose headers came before the first
	// message: by at least 1 ms, and by at least an eighth of the time to that message. Such a stream cannot be hedged while
	// it waits for the message. See hedge.WithWaitForMessage.
	EarlyHeaders int64
	// PassedThrough is the number of client-streaming and bidirectional calls that are not hedged,
	// and not in Calls. Bidirectional methods of hedge.WithSingleRequest are not among them.
	PassedThrough int64

	// SecondRequest is the number of streams of hedge.WithSingleRequest whose caller sent a second
	// message.
	SecondRequest int64
	// Rejected is the number of attempts that gave a rejected answer before their call ended: see hedge.WithAcceptable.
	Rejected int64
	// InvalidCosts is the number of calls whose cost by hedge.WithCost was not finite or less than 0. Each costs 1.
	InvalidCosts int64
	// LoserPanics is the number of losing attempts that panicked, so that the panic could not reach the caller.
	LoserPanics int64
	// TriggerPanics is the number of panics while a method's delay was computed. Each is a defect of this library. The last
	// delay stays in force, and is computed again about a second later.
	TriggerPanics int64
}

// HedgeRate is Hedges / Calls, the extra load; 0 without calls.
func (c Counts) HedgeRate() float64 {
	return float64(c.Hedges) / float64(max(c.Calls, 1))
}
