package hedge

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// Off returns a call option that leaves the call unhedged. Its latency is not learned.
func Off() grpc.CallOption { return call.OffOption{} }

// After returns a call option that hedges the call at age d instead of the learned delay, even if
// no option of [New] selects its method. Use it only for calls that may run twice. d may be below
// [WithMinDelay]; 0 or less sends all hedges at once. [WithMaxHedges] and the budget still apply.
func After(d time.Duration) grpc.CallOption { return call.AfterOption{Delay: max(d, 0)} }

// Report returns a call option that fills in outcome, for a unary call or a stream. Read outcome
// after the unary call, or the stream's first RecvMsg or Header, has returned. A nil outcome is
// ignored. Concurrent calls must not share an outcome. The option has no effect in [NewContext].
func Report(outcome *stats.Outcome) grpc.CallOption {
	if outcome == nil {
		return grpc.EmptyCallOption{}
	}
	return call.ReportOption{Fill: func(o stats.Outcome) { *outcome = o }}
}

// NewContext returns a context that applies the call options [Off] and [After] to every call made
// with it or with a context derived from it, for example by [Do] or a generated wrapper. Other
// options, and nil, are ignored. Options of a call override options of its context, and options of
// a derived context override its parent's. The options are not sent to the server. Once a process
// has called NewContext, each call looks up one value in its context.
func NewContext(ctx context.Context, opts ...grpc.CallOption) context.Context {
	return call.NewContext(ctx, opts)
}

// PreviousAttempts returns the number of the attempt that a server's handler serves, given the
// handler's context: 0 for the primary, n for hedge n. It returns 0 if the metadata has no valid
// number. gRPC's retries set the same metadata key, so their number is above 0 too. A hedge sent
// while its primary is in flight has the metadata hedge-primary-in-flight: 1, which retries lack.
func PreviousAttempts(ctx context.Context) int { return rpc.PreviousAttempts(ctx) }
