package hedgeotel

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/stream"
)

// DialOptions returns gRPC's OpenTelemetry plugin and the hedging interceptors of s, in the right order: so
// grpc.client.call.duration is what the caller waited, grpc.client.attempt.duration what each attempt took, and a call has
// one span with one child for each attempt. Do not add the interceptors a second time. Interceptors of other chain options
// come outside of them if their options come first, and else inside. The stream options are those of stream.Interceptor.
//
// The span of an attempt that lost has the attribute hedge.lost, and is no error. gRPC's plugin alone marks it as one,
// because the attempt was cancelled.
func DialOptions(s *hedge.Scheduler, plugin opentelemetry.Options, streams ...stream.Option) []grpc.DialOption {
	if provider := plugin.TraceOptions.TracerProvider; provider != nil {
		plugin.TraceOptions.TracerProvider = TracerProvider(provider)
	}
	return []grpc.DialOption{
		opentelemetry.DialOption(plugin),
		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
		grpc.WithChainStreamInterceptor(stream.Interceptor(s, streams...)),
	}
}
