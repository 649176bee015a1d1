package main

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/stream"
)

// policy is a way to make calls.
type policy struct {
	name string
	// dial returns what makes a connection follow the policy, and its scheduler if it has one.
	dial func(options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error)
}

const (
	none            = "none"
	adaptive        = "adaptive"
	contextAndTimer = "context and timer"
)

var policies = []policy{
	{none, func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		return nil, nil, nil
	}},
	{adaptive, func(options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		s, err := hedge.New(options...)
		if err != nil {
			return nil, nil, err
		}
		return []grpc.DialOption{
			grpc.WithUnaryInterceptor(interceptor.Unary(s)),
			grpc.WithStreamInterceptor(stream.Interceptor(s)),
		}, s, nil
	}},
	{contextAndTimer, func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		return []grpc.DialOption{grpc.WithUnaryInterceptor(insideContextAndTimer)}, nil, nil
	}},
}

func policyNamed(name string) policy {
	for _, p := range policies {
		if p.name == name {
			return p
		}
	}
	panic("no policy " + name)
}

// insideContextAndTimer does what no hedging can do without, and nothing else: the call gets a context that can
// be cancelled, and a timer runs beside it.
func insideContextAndTimer(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Minute, cancel).Stop()
	return invoker(ctx, method, req, reply, cc, opts...)
}
