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

// ReportOption is the call option hedge.Report. Fill may be called more than once.
type ReportOption struct {
	grpc.EmptyCallOption
	Fill func(stats.Outcome)
}

// HTTPOption marks the call as an HTTP request.
type HTTPOption struct {
	grpc.EmptyCallOption
	Safe       bool // it only reads
	Idempotent bool // HTTP, or a header of the request, allows it to be sent twice
	Selected   bool // WithMethods or WithReadOnlyMethods has a pattern that matches its path
}

// options are the hedging options of one call.
type options struct {
	off   bool
	after bool
	delay time.Duration

	report func(stats.Outcome) // of hedge.Report; nil if unset
	http   *HTTPOption         // nil for a gRPC call or a call of hedge.Do
	static bool                // of grpc.StaticMethod: the process has few method names
}

// with returns o with this library's options of opts applied. The last one wins, as with gRPC's
// options.
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

// NewContext returns a context that applies opts to every call that begins under it: see
// hedge.NewContext.
func NewContext(ctx context.Context, opts []grpc.CallOption) context.Context {
	o := inContext(ctx).with(opts)
	o.report = nil // several calls may share a context
	contextsUsed.Store(true)
	return context.WithValue(ctx, optionsKey{}, o)
}

type optionsKey struct{}

// contextsUsed is set by NewContext. Until then calls do not search their contexts for options.
var contextsUsed atomic.Bool

func inContext(ctx context.Context) options {
	if !contextsUsed.Load() {
		return options{}
	}
	o, _ := ctx.Value(optionsKey{}).(options)
	return o
}
