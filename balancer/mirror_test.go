package balancer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// twice is an interceptor that makes two calls at once with one attempt's context, as one does that mirrors calls or
// hedges them itself. The attempt's outcome is that of the first.
func twice(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var mirrored sync.WaitGroup
	defer mirrored.Wait()
	mirrored.Go(func() { _ = invoker(ctx, method, req, new(testpb.Reply), cc) })
	return invoker(ctx, method, req, reply, cc, opts...)
}

// TestTwoCallsOfOneAttempt lets an interceptor inside make each attempt's call twice at once. Both picks of one attempt
// run at the same time, and what each of the calls has used counts.
func TestTwoCallsOfOneAttempt(t *testing.T) {
	for _, child := range []string{
		roundRobin,
		stubborn,
		fmt.Sprintf(`{"hedge_other_backend": {"childPolicy": [%s]}}`, stubborn), // the lower policy leaves it to the upper
	} {
		t.Run(child, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{Backends: 6, InMemory: true, Latency: testserver.Constant(time.Second)})
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(2))
				conn := cluster.ClientT(t, over(child), grpc.WithChainUnaryInterceptor(interceptor.Unary(s), twice))
				testserver.ConnectT(t, conn)
				synctest.Wait()
				for id := range uint64(30) {
					if _, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
						t.Fatal(err)
					}
					// The stubborn child gives both calls of a primary the same backend; those of hedges go elsewhere.
					at, want := visited(cluster, id), 6
					if child != roundRobin {
						want = 5
					}
					if len(at) != 6 || different(at) != want {
						t.Errorf("call %d met the backends %v, want %d different", id, at, want)
					}
				}
				if stats := s.Stats(); stats.SameBackend != 0 {
					t.Errorf("%+v", stats)
				}
			})
		})
	}
}
