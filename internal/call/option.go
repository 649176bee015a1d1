package call

import (
	"context"
	"time"

	"go.uber.org/atomic"
	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/stats"
)

// OffOption is the call option hedge.Off.
type OffOption struct{ grpc.EmptyCallOption }

// AfterOption is the call option hedge.After. Delay is not negative.
type AfterOption struct {
	grpc.EmptyCallOption
	Delay time.Duration
}

// ReportOption is the call option hedge.Report. Fill is called at least once, and the last time when the call is decided.
type ReportOption struct {
	grpc.EmptyCallOption
	Fill func(stats.Outcome)
}

// HTTPOption says that the call is an HTTP request.
type HTTPOption struct {
	grpc.EmptyCallOption
	Safe       bool // HTTP defines its method as one that only reads
	Idempotent bool // HTTP, or a header of the request, allows it to be sent twice
}

// options is what the call options of one call say about hedging it.
type options struct {
	off   bool
	after bool
	delay time.Duration

	report func(stats.Outcome) // nil: none
	http   *HTTPOption         // nil: a gRPC call, or one of hedge.Do
	static bool                // grpc.StaticMethod: the method's name is one of few
}

// with adds this library's options. The last of several applies, as with gRPC's own. The options of a call come after its context's.
func (o options) with(opts []grpc.CallOption) options {
	for _, opt := range opts {
		switch opt := opt.(type) {
		case OffOption:
			o.off, o.after = true, false
		case AfterOption:
			o.off, o.after, o.delay = false, true, opt.Delay
		case ReportOption:
			o.report = opt.Fill
		case *HTTPOption:
			o.http = opt
		case grpc.StaticMethodCallOption:
			o.static = true
		}
	}
	return o
}

// NewContext returns a context that gives its options to every call that is begun under it: see hedge.NewContext.
func NewContext(ctx context.Context, opts []grpc.CallOption) context.Context {
	o := inContext(ctx).with(opts)
	o.report = nil // several calls may share a context
	contextsUsed.Store(true)
	return context.WithValue(ctx, optionsKey{}, o)
}

type optionsKey struct{}

// contextsUsed is set once NewContext was called. Until then calls do not look for options in their context, which takes
// time for each context that it was derived from.
var contextsUsed atomic.Bool

func inContext(ctx context.Context) options {
	if !contextsUsed.Load() {
		return options{}
	}
	o, _ := ctx.Value(optionsKey{}).(options)
	return o
}
