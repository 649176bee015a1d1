package interceptor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule06_AHedgeThatFailsEarly is for the race detector: an interceptor inside fails a hedge, which
// ends the call, while gRPC runs on and writes the variables of the hedge. The caller has them when
// gRPC is done.
func TestRule06_AHedgeThatFailsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if simulation.AttemptOf(ctx) == 0 {
				return invoker(ctx, method, req, reply, cc, opts...)
			}
			go func() { _ = invoker(context.WithoutCancel(ctx), method, req, new(testpb.Reply), cc, opts...) }()
			time.Sleep(5 * ms) // until the request is sent
			return status.Error(codes.Unavailable, "early")
		})
		s := hedgetest.New(t, hedge.WithBudgetPercent(400), hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}],
			"hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}`))
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(
			testserver.Plan{Code: codes.Unavailable},
			testserver.Plan{Delay: 20 * ms, Header: metadata.Pairs("attempt", "1")})})
		conn := cluster.ClientT(t, append(hedgetest.Interceptors(s), early)...)
		testserver.ConnectT(t, conn)
		var header metadata.MD
		finished := make(chan string, 1)
		_, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{}, grpc.Header(&header),
			grpc.OnFinish(func(error) { finished <- first(header) }))
		if status.Convert(err).Message() != "early" {
			t.Errorf("%v, want the hedge's error", err)
		}
		if got := <-finished; got != "1" {
			t.Errorf("the header is of attempt %q, want 1", got)
		}
	})
}
