package hedge

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// Off returns a call option for a call that must not be hedged. Nothing is learned of it, as such calls are often
// of another kind: long polls of a method that otherwise reads, for example.
func Off() grpc.CallOption { return call.OffOption{} }

// After returns a call option that hedges the call when it has lasted d, in place of the learned delay. It also hedges
// calls of methods that no option of [New] selects, so use it only for calls that may run twice. d may be below
// [WithMinDelay]; 0 or less sends all hedges at once. [WithMaxHedges] and the budget still apply.
func After(d time.Duration) grpc.CallOption { return call.AfterOption{Delay: max(d, 0)} }

// Report returns a call option that fills in outcome, for a unary call or a stream. Read it when the unary call has
// returned, or when the stream's first RecvMsg or Header has. A nil outcome is ignored. Calls in flight at the same time
// must not share an outcome. The option has no effect in [NewContext].
func Report(outcome *stats.Outcome) grpc.CallOption {
	if outcome == nil {
		return grpc.EmptyCallOption{}
	}
	return call.ReportOption{Fill: func(o stats.Outcome) { *outcome = o }}
}

// NewContext returns a context with the call options [Off] and [After], for every call made with it or with a context derived
// from it. It is for generated wrappers that take no call options, and for [Do]. Other options, and nil, are ignored. The
// options of a call replace the options of its context. The options of a derived context replace its parent's. The context of
// an attempt passes them on. They are not sent to the server.
//
// Once a process has called NewContext, each call looks up one value in its context. That takes 2 to 5 ns for each level of
// derivation.
func NewContext(ctx context.Context, opts ...grpc.CallOption) context.Context {
	return call.NewContext(ctx, opts)
}

// PreviousAttempts returns which attempt of a hedged call a server's handler serves: 0 for the primary, n for hedge n.
// ctx is the handler's context. It returns 0 if the metadata has no such number or an invalid one. Retries of gRPC use
// the same metadata key, so it is above 0 for them too. A hedge that is sent while its primary is in flight also has the metadata
// hedge-primary-in-flight: 1, which retries do not have.
func PreviousAttempts(ctx context.Context) int { return rpc.PreviousAttempts(ctx) }
