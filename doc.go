// Package hedge cuts the tail latency of gRPC calls by adaptive hedging.
//
// A [Scheduler] learns the latency of each method of each target. It sends a second copy of an
// unusually slow call, returns the first answer, and cancels the other attempt on the wire. A budget
// pays for every extra attempt.
//
// A call has exactly one outcome, produced by one attempt. Hedging never turns a success into a
// failure. The budget bounds the extra load over every interval: see rule 12 in docs/rules.md.
//
// The interceptors are in the packages interceptor and stream, and share a scheduler:
//
//	s, err := hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*", "/pkg.Svc/List*"))
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, interceptor.DialOptions(s, creds)...)
//
// Package hedgehttp hedges HTTP requests with the same scheduler, and [Do] any function.
//
// Hedge only methods that may run twice. [New] requires an option that selects them:
// [WithReadOnlyMethods], [WithMethods], [WithIdempotentOnly], [WithServiceConfig] or
// [WithAllMethods]. WithReadOnlyMethods is the usual choice. WithIdempotentOnly needs the
// idempotency_level of the .proto files, which few public APIs set. [WithLogger] warns if the options
// select none of a target's first 100 calls.
//
// # Terms
//
//   - attempt: one copy of a call on the wire.
//   - plain: without this library, as in "plain gRPC".
//   - primary: the attempt that an unhedged call would make.
//   - hedge: any further attempt.
//   - destination: the target to which an attempt goes. It is the call's own target unless hedges go
//     elsewhere.
//   - loser: an attempt in flight when another attempt decided the call.
//   - late: a call, or a hedge, is late when its next hedge is due.
//   - silent: a connection with late calls and no answer since.
//   - stalled: a backend that is not running, such as during a garbage collection.
//   - held back: a due hedge that is not sent yet, and is retried while its call lasts.
//   - refused: a call that gets no more hedges.
//   - turned away: a hedge that its server declined with a pushback of 0: see package shed.
//   - cut: a connection that its server closed, perhaps because of resets: see [stats.Resets].
//   - rejected: a reply, or a final status, that the function of [WithAcceptable] does not accept. A
//     final status means that the server processed the request: see [WithNonFatalCodes].
//   - delay: the age of a call at which its first hedge is due, and the time between further hedges.
//     The trigger computes it: see [Auto].
//   - budget: a token bucket. Each call adds a share of a token, and each hedge takes one token.
//   - burst: the capacity of the budget: two seconds of earnings, and at least one hedge. Calls with a
//     delay of 0.9 to 30 s keep it for up to a minute.
//   - latency: the time from the start of a call, or of a stream, to its answer or its first message.
//     A stream of [WithSingleRequest] starts with its request.
//   - window: the time for which a latency is remembered: see [WithWindow].
package hedge
