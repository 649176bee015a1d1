package interceptor

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/stream"
)

// DialOptions returns the dial options of a connection whose unary calls and server streams are hedged as s decides: those given,
// and after them [Unary] and [stream.Interceptor] in the chain forms. So interceptors among the options given are outside of
// hedging: they see each call once, and not its attempts. Interceptors that are to see each attempt are chained after what
// DialOptions returns. With a nil s nothing is hedged.
//
//	conn, err := grpc.NewClient(target, interceptor.DialOptions(s, creds)...)
//
// To send hedges to other backends, give grpc.WithDefaultServiceConfig(balancer.ServiceConfig), with package balancer of this
// module.
func DialOptions(s *hedge.Scheduler, outside ...grpc.DialOption) []grpc.DialOption {
	return append(slices.Clip(outside),
		grpc.WithChainUnaryInterceptor(Unary(s)),
		grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
}
