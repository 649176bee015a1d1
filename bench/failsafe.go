package main

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
)

// How the peer is set up: as near to this library's defaults as it can be. Its quantile follows the latest
// executions, of which it starts to hedge after as many as this library watches first. Its budget bounds hedges as
// a share of what is in flight, and not of the calls; its own minimum of 3 hedges in flight is left as it is.
const (
	failsafeQuantile  = 0.90
	failsafeAge       = 1000
	failsafeThreshold = 20
	failsafeBudget    = 0.10
)

func failsafeInterceptor(hedges int) grpc.UnaryClientInterceptor {
	return failsafegrpc.NewUnaryClientInterceptor(hedgepolicy.
		NewBuilderWithDelayQuantile[any](failsafeQuantile, failsafeAge, failsafeThreshold).
		WithMaxHedges(hedges).
		WithBudget(budget.NewBuilder().WithMaxRate(failsafeBudget).Build()).
		Build())
}

// failsafe is failsafe-go's hedging of unary calls; it has none for streams. The peer does not tell a server which
// attempt it serves, so that is added around it: without, the server would draw the same latency for every
// attempt of a call, and no hedge could win.
func failsafe(hedges int) func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
	return func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		return []grpc.DialOption{grpc.WithChainUnaryInterceptor(countAttempts, failsafeInterceptor(hedges), numberAttempt)}, nil, nil
	}
}

type attemptsKey struct{}

// countAttempts gives a call the count of its attempts.
func countAttempts(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoker(context.WithValue(ctx, attemptsKey{}, new(atomic.Int64)), method, req, reply, cc, opts...)
}

// numberAttempt tells the server how many attempts went before.
func numberAttempt(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if n := ctx.Value(attemptsKey{}).(*atomic.Int64).Add(1) - 1; n > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", strconv.FormatInt(n, 10))
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}
