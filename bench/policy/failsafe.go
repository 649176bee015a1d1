package policy

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
)

// The peer is set up as closely to this library's defaults as it can be. Its quantile covers the
// latest executions, and it starts to hedge after as many executions as this library's warm-up. Its
// budget limits hedges as a share of the calls in flight, not of all calls; its minimum of 3 hedges
// in flight is left as it is.
const (
	failsafeQuantile  = 0.90
	failsafeAge       = 1000
	failsafeThreshold = 20
	failsafeBudget    = 0.10
)

func failsafeInterceptor(hedges int) grpc.UnaryClientInterceptor {
	return failsafegrpc.NewUnaryClientInterceptor(failsafeHedges(hedges))
}

func failsafeHedges(hedges int) failsafe.Policy[any] {
	return hedgepolicy.
		NewBuilderWithDelayQuantile[any](failsafeQuantile, failsafeAge, failsafeThreshold).
		WithMaxHedges(hedges).
		WithBudget(budget.NewBuilder().WithMaxRate(failsafeBudget).Build()).
		Build()
}

// failsafeDial is failsafe-go's hedging of unary calls; it has none for streams. The peer does not send
// the number of the attempt, so interceptors around it add the number. Without it the server would
// draw the same latency for every attempt of a call, and no hedge could win.
func failsafeDial(hedges int) Dial {
	return func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		return []grpc.DialOption{grpc.WithChainUnaryInterceptor(countAttempts, failsafeInterceptor(hedges),
			numberAttempt)}, nil, nil
	}
}

type attemptsKey struct{}

// countAttempts adds a counter of attempts to the call's context.
func countAttempts(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoker(context.WithValue(ctx, attemptsKey{}, new(atomic.Int64)), method, req, reply, cc, opts...)
}

// numberAttempt sends the number of earlier attempts to the server.
func numberAttempt(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if n := ctx.Value(attemptsKey{}).(*atomic.Int64).Add(1) - 1; n > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", strconv.FormatInt(n, 10))
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}
