package interceptor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRule07_NoResets lets no loser be reset on the wire, of unary calls and of streams, and all of them end.
func TestRule07_NoResets(t *testing.T) {
	for _, limit := range []int{0, 5} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			for _, streams := range []bool{false, true} {
				got := traffic{rate: 100, callers: 16, streams: streams, lasts: 4 * time.Second, hedged: true,
					options: []hedge.Option{hedge.WithResetLimit(limit, time.Minute), hedge.WithWarmup(20, 10*ms)}}.run(t)
				if got.conns.Resets > int64(limit) || limit > 0 && got.conns.Resets == 0 || len(got.failed) > 0 {
					t.Errorf("streams=%v: %d resets, failed: %v", streams, got.conns.Resets, got.failed)
				}
				if got.stats.Left == 0 || got.stats.Left+got.conns.Resets < got.stats.Hedges/2 {
					t.Errorf("streams=%v: %+v", streams, got.stats)
				}
			}
		})
	}
}

// TestDetached_CancelledBefore lets a call be made with a context that was cancelled before: no attempt that could be carried out
// is sent, as without the interceptor, where gRPC looks at the context first.
func TestDetached_CancelledBefore(t *testing.T) {
	s := hedgetest.Fixed(t, 10*ms, hedge.WithResetLimit(0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		if ctx.Err() == nil {
			t.Error("the attempt could be sent")
		}
		return status.FromContextError(ctx.Err()).Err()
	}
	for range 100 {
		if err := interceptor.Unary(s)(ctx, "/a/Get", wrapperspb.Int64(1), wrapperspb.Int64(0), nil, invoke); status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
	}
}
