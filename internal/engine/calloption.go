package engine

import (
	"context"
	"time"

	"go.uber.org/atomic"
	"google.golang.org/grpc"
)

// OffOption is the call option hedge.Off.
type OffOption struct{ grpc.EmptyCallOption }

// AfterOption is the call option hedge.After. Delay is not negative.
type AfterOption struct {
	grpc.EmptyCallOption
	Delay time.Duration
}

// callOptions is what the call options of one call say about hedging it.
type callOptions struct {
	off   bool
	after bool
	delay time.Duration
}

// readCallOptions finds this library's options; of several the last counts, as with gRPC's own, and those of the call
// count after those of its context.
func readCallOptions(ctx context.Context, opts []grpc.CallOption) callOptions {
	return inContext(ctx).with(opts)
}

func (o callOptions) with(opts []grpc.CallOption) callOptions {
	for _, opt := range opts {
		switch opt := opt.(type) {
		case OffOption:
			o = callOptions{off: true}
		case AfterOption:
			o = callOptions{after: true, delay: opt.Delay}
		}
	}
	return o
}

// NewContext returns a context that gives its options to every call that is begun under it: see hedge.NewContext.
func NewContext(ctx context.Context, opts []grpc.CallOption) context.Context {
	o := inContext(ctx).with(opts)
	contextsUsed.Store(true)
	return context.WithValue(ctx, callOptionsKey{}, o)
}

type callOptionsKey struct{}

// contextsUsed says that there may be options in a context: looking for them takes the longer the deeper it is.
var contextsUsed atomic.Bool

func inContext(ctx context.Context) callOptions {
	if !contextsUsed.Load() {
		return callOptions{}
	}
	o, _ := ctx.Value(callOptionsKey{}).(callOptions)
	return o
}
