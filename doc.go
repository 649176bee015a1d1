// Package hedge cuts the tail latency of gRPC calls by adaptive hedging.
//
// A [Scheduler] learns how long each method of each target takes. When a call has become unusually slow, a second copy of it
// is sent. The caller gets the answer that comes first, and the other attempt is cancelled on the wire. A budget pays for
// every extra attempt.
//
// A call has exactly one outcome, which one attempt really produced. Hedging never turns a success into a failure. In any
// interval, the extra attempts stay within the budget's share of the calls in it, plus what was saved before: what two seconds
// of calls earn, one hedge at least, and up to four times as much again while hedges win.
//
// The packages interceptor and stream have the interceptors, which share a scheduler:
//
//	s, err := hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*", "/pkg.Svc/List*"))
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, interceptor.DialOptions(s, creds)...)
//
// Hedge only what may run twice. [New] requires one of the options [WithReadOnlyMethods], [WithMethods],
// [WithIdempotentOnly], [WithServiceConfig] and [WithAllMethods], which say which methods may. WithReadOnlyMethods is the
// usual one: WithIdempotentOnly goes by the idempotency_level of the .proto files, which few public APIs set. [WithLogger]
// says when none of a target's first 100 calls was of a method that may.
//
// # Terms
//
//   - attempt: one copy of a call on the wire.
//   - primary: the attempt that an unhedged call would make.
//   - hedge: any further attempt.
//   - loser: an attempt that was in flight when another attempt decided the call.
//   - late: a call is late when its hedge is due.
//   - delay: the age of a call at which its first hedge is due, and the time from each hedge to the next.
//   - trigger: what chooses the delay, see [Auto].
//   - budget: a bucket of tokens. Each call adds a share of a token, and each hedge takes one token.
//   - window: how long a latency is remembered, see [WithWindow].
//   - learning: a method is being learned until [WithWarmup] calls of it have been seen.
//   - final status: a status by which a server says that it looked at the request and answered. Every other status is
//     non-fatal, see [WithNonFatalCodes].
//   - rejected answer: a reply or a final status that the function of [WithAcceptable] does not accept.
package hedge
