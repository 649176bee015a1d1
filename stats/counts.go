package stats

// Counts has counts of calls and hedges. hedge.Scheduler.Stats counts from the start of the
// scheduler. Counts never fall.
type Counts struct {
	// Calls is the number of calls begun, without PassedThrough.
	Calls int64
	// Hedged is the number of calls for which at least one hedge was sent.
	Hedged int64
	// Hedges is the number of hedges sent.
	Hedges int64
	// HedgeWins and PrimaryWins count hedged calls that ended with an answer, OK or a final status,
	// by the attempt that gave it, unless servers turned all hedges away: see WinRate.
	HedgeWins, PrimaryWins int64
	// TurnedAway is the number of hedges that their servers turned away: see package shed. Each
	// costs a tenth of a hedge. Hedges and PushedBack include them.
	TurnedAway int64
	// Failed is the number of calls that failed for their callers: with an error that is neither a
	// final status nor the caller's own cancellation. A stream fails only before its first message,
	// and does not count if the options do not select it.
	Failed int64
	// FailedHedged is the number of failed calls for which at least one hedge was sent. Failed
	// includes them.
	FailedHedged int64
	// Control is the number of calls in the control group, and ControlFailed the number of those
	// that failed: see hedge.WithControl. Calls and Failed include them.
	Control, ControlFailed int64
	// SameBackend is the number of hedges sent to a backend that an attempt of their call had used,
	// because no other was ready. It is 0 without the policy of package balancer. Over HTTP it is the
	// number of hedges on a connection with their primary's remote address, if the transport
	// reports connections to package httptrace, as http.Transport does.
	SameBackend int64
	// Received is the number of hedges that came to this target for calls of another one: see
	// interceptor.HedgeTo. Hedges counts them at the other target.
	Received int64
	// Failovers is the number of hedges that were due because an attempt had failed: see
	// hedge.WithFailover, and [Resets] for connections that are cut. Hedges includes them.
	Failovers int64

	// The counts from UnknownOption to PassedThrough are reasons for not sending a hedge. A count of calls
	// rises when a call begins. A count of hedges rises when a hedge is due, at most once per hedge
	// and reason. A hedge in BudgetExhausted, NotReady, Guarded, ResetsSpent or ClientBusy is held back:
	// it is retried while its call lasts.

	// UnknownOption is the number of calls that cannot be hedged because a call option points to an
	// option of gRPC, or its type embeds one other than grpc.EmptyCallOption: attempts could not share it.
	UnknownOption int64
	// Warmup is the number of calls begun while their method was being learned.
	Warmup int64
	// BudgetExhausted is the number of due hedges that the budget did not pay for. With Auto, a
	// first hedge counts if that is still so at twice its delay.
	BudgetExhausted int64
	// NotDrawn is the number of due hedges that were not sent, at random: by Choice.Probability, and a
	// few to learn the latency without hedging, which are due again at 16 times the age.
	NotDrawn int64
	// NotReady is the number of hedges that were due while the connection was not ready.
	NotReady int64
	// DeadlineNear is the number of hedges not sent because they would hardly answer before the
	// call's deadline.
	DeadlineNear int64
	// Paused is the number of calls begun, and of hedges due, while hedging was paused.
	Paused int64
	// OfHedges is the number of hedges not sent because their call was made on behalf of a hedge:
	// see docs/configuration.md. The call gets no more hedges.
	OfHedges int64
	// Off is the number of calls with the option hedge.Off or hedge.WithOff.
	Off int64
	// NotSelected is the number of calls of methods that the options of hedge.New do not select.
	NotSelected int64
	// NoDescriptor is the number of calls of methods that hedge.WithIdempotentOnly does not select
	// because their descriptor is not linked into the program. NotSelected does not include them.
	NoDescriptor int64
	// Throttled is the number of hedges not sent because at most half of the target's throttle
	// tokens were left. The call gets no more hedges.
	Throttled int64
	// Guarded is the number of hedges held back because hedges exhaust a rate limit: see [Guard].
	Guarded int64
	// PushedBack is the number of failed attempts with the trailer grpc-retry-pushback-ms, by which
	// a server delays or forbids the next attempt, or with HTTP's Retry-After.
	PushedBack int64
	// NotReplayable is the number of calls that cannot be hedged because of their request or reply:
	// see interceptor.Unary, and hedgehttp.Transport for HTTP requests. It includes streams whose
	// request was incomplete when a hedge was due, and streams of methods with too many second
	// messages (see hedge.WithSingleRequest). gRPC requests are examined when a hedge is due.
	NotReplayable int64
	// ResetsSpent is the number of hedges held back by the limit of resets: see [Resets].
	ResetsSpent int64
	// ClientBusy is the number of hedges that were due while this process was short of processor
	// time: on average its goroutines waited for a processor for more than a sixteenth of the
	// call's age (at least 200 µs), or the hedge's timer fired that late (at least 2 ms). The
	// latencies of these calls are not learned.
	ClientBusy int64
	// DryRun is the number of calls that would have been hedged without hedge.WithDryRun. Hedged
	// does not include them. Other late calls of a dry run count by their reasons. Hedges caused by
	// a failure are not counted.
	DryRun int64
	// EarlyHeaders is the number of streams on which Header was called first and returned headers at
	// least 1 ms, and an eighth of the latency, before the first message: see
	// hedge.WithWaitForMessage.
	EarlyHeaders int64
	// PassedThrough is the number of client-streaming calls, and of bidirectional calls without
	// hedge.WithSingleRequest. They are never hedged, and Calls does not include them.
	PassedThrough int64

	// SecondRequest is the number of streams of hedge.WithSingleRequest with a second message from
	// the caller.
	SecondRequest int64
	// Rejected is the number of attempts with a rejected answer before their call ended: see
	// hedge.WithAcceptable.
	Rejected int64
	// LoserPanics is the number of losers that panicked too late for the panic to reach the caller.
	LoserPanics int64
	// TriggerPanics is the number of panics in the computation of a method's delay. Each is a bug
	// in this library. The previous delay stays in force.
	TriggerPanics int64
}

// HedgeRate returns the extra load, (Hedges - 0.9 TurnedAway) / Calls, which the budget bounds; 0
// without calls.
func (c Counts) HedgeRate() float64 {
	return (float64(c.Hedges) - 0.9*float64(c.TurnedAway)) / float64(max(c.Calls, 1))
}

// WinRate returns HedgeWins / (HedgeWins + PrimaryWins); 0 without either. A call whose hedges were
// all turned away shows nothing about hedging, and is not included.
func (c Counts) WinRate() float64 {
	return float64(c.HedgeWins) / float64(max(c.HedgeWins+c.PrimaryWins, 1))
}
