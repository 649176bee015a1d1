package interceptor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRule17_AFastCallStaysOnItsGoroutine observes calls that need no hedge from inside.
func TestRule17_AFastCallStaysOnItsGoroutine(t *testing.T) {
	unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour))
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	opts := []grpc.CallOption{grpc.WaitForReady(true)}
	invoke := func(_ context.Context, _ string, gotReq, gotReply any, _ *grpc.ClientConn, got ...grpc.CallOption) error {
		stack := make([]byte, 64<<10)
		if stack = stack[:runtime.Stack(stack, false)]; !bytes.Contains(stack, []byte("testing.tRunner(")) {
			t.Errorf("not on the caller's goroutine: %s", stack)
		}
		if gotReq != any(req) || gotReply != any(reply) || &got[0] != &opts[0] {
			t.Error("the request, the reply or the call options were copied")
		}
		return nil
	}
	if err := unary(t.Context(), "/a/B", req, reply, nil, invoke, opts...); err != nil {
		t.Error(err)
	}
}

// TestRule17_Allocations counts the allocations of a call that needs no hedge. A throttle or a
// policy needs the trailer.
func TestRule17_Allocations(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []hedge.Option
		most float64
	}{
		"alone":           {nil, 3},
		"with a trace":    {[]hedge.Option{hedge.WithTrace((&told{}).trace()), hedge.WithLogger(slog.Default())}, 3},
		"with a throttle": {[]hedge.Option{hedgetest.Throttle(10, 0.1)}, 5},
		"with a policy": {[]hedge.Option{hedge.WithServiceConfig(hedging(`{"maxAttempts": 2, "hedgingDelay": "3600s"}`))},
			6},
	} {
		t.Run(name, func(t *testing.T) {
			unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour, tc.opts...))
			req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
			ctx := t.Context()
			n := testing.AllocsPerRun(1000, func() {
				if err := unary(ctx, "/test.Service/Method", req, reply, nil, listen); err != nil {
					t.Error(err)
				}
			})
			if t.Logf("%v allocations", n); n > tc.most {
				t.Errorf("%v allocations over a bare invoker, want at most %v", n, tc.most)
			}
		})
	}
}

// listen does what any invoker does with its context: it asks for the channel of its end.
func listen(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	_ = ctx.Done()
	return nil
}

// BenchmarkUnary is the cost of a call that needs no hedge, over an invoker that does nothing:
// inside a cancellable context and a timer, which no hedging can do without; hedged, with a delay
// that was learned, and with rules for others; and watched.
func BenchmarkUnary(b *testing.B) {
	conn := testserver.StartT(b, testserver.Config{}).ClientT(b)
	testserver.ConnectT(b, conn) // a call over a connection that is not ready teaches nothing
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	// Calls this short would be hedged after the least delay, within the benchmark's own noise.
	hedged := []hedge.Option{hedge.WithMinDelay(time.Second)}
	rules := hedged
	for n := range 100 {
		rules = append(rules, hedge.WithMethodOptions(fmt.Sprintf("/other.Svc%d/*", n), hedge.WithMaxHedges(1)),
			hedge.WithTargetOptions(fmt.Sprintf("dns:///other-%d*", n), hedge.WithMaxHedges(1)))
	}
	schedulers := map[string]*hedge.Scheduler{
		"hedged": hedgetest.All(b, hedged...), "hedged, 200 rules": hedgetest.All(b, rules...),
		"watched": hedgetest.All(b, hedge.WithMaxHedges(0)),
	}
	for name, with := range map[string]grpc.UnaryClientInterceptor{
		"contextAndTimer": func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer time.AfterFunc(time.Second, func() { cancel() }).Stop()
			return invoker(ctx, method, req, reply, cc, opts...)
		},
		"hedged":            interceptor.Unary(schedulers["hedged"]),
		"hedged, 200 rules": interceptor.Unary(schedulers["hedged, 200 rules"]),
		"watched":           interceptor.Unary(schedulers["watched"]),
	} {
		b.Run(name, func(b *testing.B) {
			call := func() {
				if err := with(b.Context(), "/pkg.Svc/Get", req, reply, conn, listen); err != nil {
					b.Fatal(err)
				}
			}
			for range 1000 { // the warm-up
				call()
			}
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
			if s := schedulers[name]; s != nil && name != "watched" && (s.Stats().Warmup > 100 || s.Methods()[0].Delay == 0) {
				b.Errorf("%d calls of the warm-up: not the cost of a hedged call", s.Stats().Warmup)
			}
		})
	}
}
