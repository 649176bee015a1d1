package interceptor_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// listen does what any invoker does with its context: it asks for the channel of its end.
func listen(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	_ = ctx.Done()
	return nil
}

// BenchmarkUnary is the cost of a call that needs no hedge, over an invoker that does nothing:
// inside a cancellable context and a timer, which no hedging can do without; hedged, with a delay
// that was learned; and watched.
func BenchmarkUnary(b *testing.B) {
	conn, err := grpc.NewClient("passthrough:///bench", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	for name, with := range map[string]grpc.UnaryClientInterceptor{
		"contextAndTimer": func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer time.AfterFunc(time.Second, func() { cancel() }).Stop()
			return invoker(ctx, method, req, reply, cc, opts...)
		},
		// Calls this short would be hedged after the least delay, within the benchmark's own noise.
		"hedged":  interceptor.Unary(hedgetest.All(b, hedge.WithMinDelay(time.Second))),
		"watched": interceptor.Unary(hedgetest.All(b, hedge.WithMaxHedges(0))),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := with(b.Context(), "/pkg.Svc/Get", req, reply, conn, listen); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
