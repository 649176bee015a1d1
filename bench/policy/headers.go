package policy

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stream"
)

// headersCalibrated hedges once, after a quantile of the time to response headers, with an
// unlimited budget. It stands for policies that mistake the first byte of a stream for its first
// message.
func headersCalibrated(q float64, floor time.Duration) Dial {
	return func(options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		seen := &headerTimes{window: sketch.New(30 * time.Second)}
		dial, s, err := Ours(hedge.WithMaxHedges(1), hedge.WithBudgetPercent(Unbounded))(options)
		before := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			after := hedge.Off()
			if delay, ok := seen.window.Snapshot(time.Now()).Quantile(q); ok {
				after = hedge.After(max(delay, floor))
			}
			return streamer(ctx, desc, cc, method, append(opts, after)...)
		}
		// gRPC runs chained interceptors after the single one, so both are chained here.
		dial = append(dial[:1:1], grpc.WithChainStreamInterceptor(before, stream.Interceptor(s)), grpc.WithStatsHandler(seen))
		return dial, s, err
	}
}

// headerTimes is a stats handler that learns how long the headers of each attempt take.
type headerTimes struct{ window *sketch.Window }

type beganKey struct{}

func (h *headerTimes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, beganKey{}, time.Now())
}

func (h *headerTimes) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InHeader); ok {
		now := time.Now()
		h.window.Record(now, now.Sub(ctx.Value(beganKey{}).(time.Time)), true)
	}
}

func (h *headerTimes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (h *headerTimes) HandleConn(context.Context, stats.ConnStats)                       {}
