package policy

import (
	"context"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
)

// To is [Dial] for workloads with a second destination, to which other is a connection.
type To func(other grpc.ClientConnInterface, options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error)

// oursTo is this library with failover and one hedge to the other destination, for which the budget
// always pays.
func oursTo(other grpc.ClientConnInterface, options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
	_, s, err := Ours(hedge.WithFailover(), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100))(options)
	return interceptor.DialOptions(s, interceptor.HedgeTo(other)), s, err
}

// mostRetries is how often a failed call is made again, by the retry interceptor and by the peer.
const mostRetries = 2

// retry makes a call that fails with UNAVAILABLE again, at once.
func retry(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
	opts ...grpc.CallOption) (err error) {
	for range 1 + mostRetries {
		if err = invoker(ctx, method, req, reply, cc, opts...); status.Code(err) != codes.Unavailable {
			break
		}
	}
	return err
}

// failsafeTo is three policies of the peer: hedges and retries at the first destination, and a call
// to the other one if all of them fail. The peer has no hedges to another destination.
func failsafeTo(other grpc.ClientConnInterface, _ []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
	unavailable := func(_ any, err error) bool { return status.Code(err) == codes.Unavailable }
	elsewhere := fallback.NewBuilderWithFunc(func(e failsafe.Execution[any]) (any, error) {
		c := e.Context().Value(callKey{}).(*unaryCall)
		return c.reply, c.invoke(e.Context(), other)
	}).HandleIf(func(_ any, err error) bool { return err != nil }).Build()
	retries := retrypolicy.NewBuilder[any]().WithMaxRetries(mostRetries).HandleIf(unavailable).ReturnLastFailure().Build()
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(countAttempts, keepCall,
		failsafegrpc.NewUnaryClientInterceptor[any](elsewhere, retries, failsafeHedges(1)), numberAttempt)}, nil, nil
}

type callKey struct{}

// unaryCall is a call that the peer's fallback makes again.
type unaryCall struct {
	method     string
	req, reply any
}

func (c *unaryCall) invoke(ctx context.Context, conn grpc.ClientConnInterface) error {
	return numberAttempt(ctx, c.method, c.req, c.reply, nil, func(ctx context.Context, method string, req, reply any,
		_ *grpc.ClientConn, opts ...grpc.CallOption) error {
		return conn.Invoke(ctx, method, req, reply, opts...)
	})
}

// keepCall adds the call to its context.
func keepCall(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	return invoker(context.WithValue(ctx, callKey{}, &unaryCall{method, req, reply}), method, req, reply, cc, opts...)
}
