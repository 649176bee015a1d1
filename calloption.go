package hedge

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// Off returns a call option for a call that must not be hedged. Its latency is still learned.
func Off() grpc.CallOption { return offOption{} }

// After returns a call option for a call that is hedged when it has lasted d, whatever was learned, and even
// while the method is being learned or when [WithMethods] or [WithIdempotentOnly] leaves it out. d may be
// below [WithMinDelay]; 0 or less sends all hedges at once. The number of hedges and the budget stay bounded
// as for any call.
func After(d time.Duration) grpc.CallOption { return afterOption{delay: max(d, 0)} }

type offOption struct{ grpc.EmptyCallOption }

type afterOption struct {
	grpc.EmptyCallOption
	delay time.Duration
}

// callOptions is what the call options of one call say about hedging it.
type callOptions struct {
	off   bool
	after bool
	delay time.Duration
}

// readCallOptions finds this package's options; of several the last counts, as with gRPC's own, and those of the call
// count after those of its context.
func readCallOptions(ctx context.Context, opts []grpc.CallOption) callOptions {
	return inContext(ctx).with(opts)
}

func (o callOptions) with(opts []grpc.CallOption) callOptions {
	for _, opt := range opts {
		switch opt := opt.(type) {
		case offOption:
			o = callOptions{off: true}
		case afterOption:
			o = callOptions{after: true, delay: opt.delay}
		}
	}
	return o
}

// NewContext returns a context that gives its options to every call made with it, or with a context derived from it. It
// is for generated wrappers that take no call options, and for [Do]. It carries the options of this package, [Off] and
// [After]. Options of other packages, and nil ones, are ignored.
//
// A call's own options replace those of its context, and those of a context replace those of the context that it was
// derived from. Calls that are made with the context of an attempt inherit the options, as any value of a context. The
// options do not travel to the server.
//
// Until a process uses NewContext for the first time, calls pay nothing for it. From then on each call looks up one value
// in its context, 2 to 5 ns for each context that it was derived from.
func NewContext(ctx context.Context, opts ...grpc.CallOption) context.Context {
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
