package test

import (
	"os"
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
	case "1ms":
		options = append(options, hedge.WithWarmup(1<<40, time.Millisecond), hedge.WithBudgetPercent(400))
	default:
		panic("HEDGE_SUITE_MODE is " + mode)
	}
	s, err := hedge.New(options...)
	if err != nil {
		panic(err)
	}
	add := func() {
		internal.AddGlobalDialOptions.(func(opt ...grpc.DialOption))(
			grpc.WithChainUnaryInterceptor(interceptor.Unary(s)), grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
	}
	add()
	// A test that clears its own global options must not take these away from the tests after it.
	clear := internal.ClearGlobalDialOptions
	internal.ClearGlobalDialOptions = func() {
		clear()
		add()
	}
}
