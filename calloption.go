package hedge

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/wire"
)

// Off returns a call option for a call that must not be hedged. Its latency is still learned.
func Off() grpc.CallOption { return engine.OffOption{} }

// After returns a call option for a call that is hedged when it has lasted d, whatever was learned, and even
// while the method is being learned or when [WithMethods] or [WithIdempotentOnly] leaves it out. d may be
// below [WithMinDelay]; 0 or less sends all hedges at once. The number of hedges and the budget stay bounded
// as for any call.
func After(d time.Duration) grpc.CallOption { return engine.AfterOption{Delay: max(d, 0)} }

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
	return engine.NewContext(ctx, opts)
}

// PreviousAttempts tells a server's handler which attempt of a hedged call it serves: 0 for the primary, n for
// hedge n. ctx is the handler's context. A call whose metadata does not say, or says nonsense, is a primary.
func PreviousAttempts(ctx context.Context) int { return wire.PreviousAttempts(ctx) }
