package test

import (
	"context"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/internal"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/stream"
)

// The interceptors are options of every connection that a test makes, in front of the test's own.
func init() {
	options := []hedge.Option{hedge.WithAllMethods()}
	switch mode := os.Getenv("HEDGE_SUITE_MODE"); mode {
	case "plain":
		return
	case "watching":
		options = append(options, hedge.WithMaxHedges(0))
	case "untuned":
	case "1ms", "elsewhere":
		options = append(options, hedge.WithWarmup(1<<40, time.Millisecond), hedge.WithBudgetPercent(400))
	default:
		panic("HEDGE_SUITE_MODE is " + mode)
	}
	s, err := hedge.New(options...)
	if err != nil {
		panic(err)
	}
	unary, streams := interceptor.Unary(s), stream.Interceptor(s)
	if os.Getenv("HEDGE_SUITE_MODE") == "elsewhere" {
		unary, streams = toTwins(s)
	}
	add := func() {
		internal.AddGlobalDialOptions.(func(opt ...grpc.DialOption))(
			grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(streams))
	}
	add()
	// A test that clears its own global options must not take these away from the tests after it.
	clear := internal.ClearGlobalDialOptions
	internal.ClearGlobalDialOptions = func() {
		clear()
		add()
	}
}

// toTwins returns interceptors that send the hedges of each connection over its twin.
func toTwins(s *hedge.Scheduler) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor) {
	type pair struct {
		unary  grpc.UnaryClientInterceptor
		stream grpc.StreamClientInterceptor
	}
	var pairs sync.Map // *grpc.ClientConn → pair
	of := func(cc *grpc.ClientConn) pair {
		if known, ok := pairs.Load(cc); ok {
			return known.(pair)
		}
		twin := grpc.Twin(cc)
		if twin != nil { // a twin has no twin
			pairs.Store(twin, pair{interceptor.Unary(s), stream.Interceptor(s)})
		}
		known, _ := pairs.LoadOrStore(cc, pair{interceptor.Unary(s, twin), stream.Interceptor(s, twin)})
		return known.(pair)
	}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
			opts ...grpc.CallOption) error {
			return of(cc).unary(ctx, method, req, reply, cc, invoker, opts...)
		}, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
			opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return of(cc).stream(ctx, desc, cc, method, streamer, opts...)
		}
}
