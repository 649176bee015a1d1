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
// package balancer of this module.
func DialOptions(s *hedge.Scheduler, outside ...grpc.DialOption) []grpc.DialOption {
	return append(slices.Clip(outside),
		grpc.WithChainUnaryInterceptor(Unary(s)),
		grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
}
