// Package hedge cuts the tail latency of gRPC calls by adaptive hedging.
//
// A [Scheduler] learns how long each method of each target takes. When a call has become unusually slow it
// has a second copy of it sent, returns whichever answer comes first, cancels the other on the wire, and pays
// for every extra attempt out of a budget. It guarantees that a call has exactly one outcome, which one
// attempt really produced, that a success never becomes a failure by being hedged, and that over any long time
// the extra attempts stay within the budget's share of the calls. For a short time they may take what was saved
// before: two seconds' worth, and eight seconds' more as long as hedges win.
//
// The interceptors do the work; the scheduler is what they share:
//
//	s, err := hedge.New(hedge.WithIdempotentOnly())
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
//		grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
//
// Hedge only what may run twice: New must be told with [WithIdempotentOnly], [WithReadOnlyMethods], [WithMethods],
// [WithServiceConfigOnly] or [WithAllMethods].
//
// # Terms
//
// An attempt is one copy of a call on the wire. The primary is the attempt that an unhedged call would make;
// a hedge is any further one. The trigger is the age at which a call gets its first hedge, and how that is
// found: see [Auto]. The budget is a bucket of tokens that each call fills a little and each hedge takes
// one from.
package hedge
