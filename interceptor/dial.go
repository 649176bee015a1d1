package interceptor

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/stream"
)

// DialOptions returns the dial options for a connection that hedges its calls as s decides, or not
// at all if s is nil: first the options in outside, then [Unary] and [stream.Interceptor] in their
// chain forms. Interceptors in outside see each call once. Interceptors chained after the result of
// DialOptions see each attempt.
//
//	conn, err := grpc.NewClient(target, interceptor.DialOptions(s, creds)...)
//
// To send hedges to other backends, add grpc.WithDefaultServiceConfig(balancer.ServiceConfig), from
// package balancer of this module. To send them to another service, add [HedgeTo].
func DialOptions(s *hedge.Scheduler, outside ...grpc.DialOption) []grpc.DialOption {
	var to []grpc.ClientConnInterface
	options := make([]grpc.DialOption, 0, len(outside)+2)
	for _, opt := range outside {
		if h, ok := opt.(hedgeTo); ok {
			to = append(to, h.conns...)
		} else {
			options = append(options, opt)
		}
	}
	return append(options,
		grpc.WithChainUnaryInterceptor(Unary(s, to...)),
		grpc.WithChainStreamInterceptor(stream.Interceptor(s, to...)))
}

// HedgeTo, as an argument of [DialOptions], sends hedges over other connections, to another region,
// provider or replica. Hedge n uses the n-th connection; after the last one, the first is next. A
// connection that is closed or in TRANSIENT_FAILURE is skipped, if another one is not. Nil
// connections are ignored. The caller must close the connections, after this one. As an argument of
// grpc.NewClient it is an error.
//
//	us, err := grpc.NewClient("dns:///us.example:443", creds)
//	...
//	eu, err := grpc.NewClient("dns:///eu.example:443",
//		interceptor.DialOptions(s, creds, interceptor.HedgeTo(us))...)
//
// A hedge has the caller's context, metadata and call options, the options of
// grpc.WithDefaultCallOptions of this connection included. The hedge's connection has load
// balancing, transport credentials and interceptors of its own; interceptors chained after hedging
// on this connection see only attempts on this connection. If the hedge's connection is itself
// hedged, it sends the hedge as it is.
//
// The budget of this connection's target pays for the hedge. The hedge's target has rate limits,
// pushbacks and limits of resets of its own. The delay follows the latency of hedges, and of
// primaries of the hedge's target, if the scheduler learns any. UNIMPLEMENTED, UNAUTHENTICATED or
// PERMISSION_DENIED of a hedge's target does not end the call. The two services may differ in
// consistency, price and quota: see [hedge.WithAcceptable] for replicas that lag.
func HedgeTo(conns ...grpc.ClientConnInterface) grpc.DialOption {
	return hedgeTo{misplaced, slices.Clone(conns)}
}

type hedgeTo struct {
	grpc.DialOption // of a connection to which HedgeTo itself is given: misplaced
	conns           []grpc.ClientConnInterface
}

// misplaced makes grpc.NewClient return an error that has the policy's name.
var misplaced = grpc.WithDefaultServiceConfig(
	`{"loadBalancingConfig": [{"hedge: HedgeTo: must be an argument of interceptor.DialOptions": {}}]}`)
