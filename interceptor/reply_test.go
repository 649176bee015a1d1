package interceptor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule06_OnFinishAfterTheCall has an interceptor inside return before gRPC's call ends, beside
// plain gRPC.
func TestRule06_OnFinishAfterTheCall(t *testing.T) {
	for _, tc := range []struct {
		name  string
		delay time.Duration
	}{{"plain", 0}, {"primary", time.Hour}, {"beside a hedge, whose status is not a server's", ms}} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			cluster := serve(t, func(a testserver.Attempt) plan {
				return plan{Delay: time.Duration(20-10*a.Number) * ms, Header: metadata.Pairs("attempt", fmt.Sprint(a.Number))}
			})
			s := hedgetest.FixedOrPlain(t, tc.delay, hedge.WithMaxHedges(1))
			conn := dial(t, cluster, s, grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
					opts ...grpc.CallOption) error {
					go func() {
						_ = invoker(context.WithoutCancel(ctx), method, req, &testpb.Reply{}, cc, opts...)
					}()
					time.Sleep(time.Duration(7-3*simulation.AttemptOf(ctx)) * ms)
					return status.Error(codes.NotFound, "gave up")
				}))
			began, header := time.Now(), metadata.MD{}
			var finished []string
			opts := []grpc.CallOption{grpc.Header(&header), grpc.OnFinish(func(err error) {
				finished = append(finished, fmt.Sprint(time.Since(began), err, header.Get("attempt")))
			})}
			err := conn.Invoke(t.Context(), testpb.TestService_UnaryNoSideEffects_FullMethodName, &testpb.Request{Id: 1},
				new(testpb.Reply), opts...)
			returned := time.Since(began)
			if tc.delay > 0 { // plain gRPC hands the slice to the interceptor, which still uses it
				clear(opts)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if want := "[20ms <nil> [0]]"; status.Code(err) != codes.NotFound || returned >= 10*ms ||
				fmt.Sprint(finished) != want {
				t.Errorf("%v after %v, OnFinish %v, want %s", err, returned, finished, want)
			}
		})
	}
}

func TestNotReadyIsNotHedged(t *testing.T) {
	eachDoor(t, "stopped", func(t *testing.T, d door) {
		cluster := serve(t, nil)
		cluster.Stop(0)
		s := hedgetest.Fixed(t, ms)
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		_, err := callOver(ctx, d, testpb.NewTestServiceClient(cluster.ClientT(t, hedgetest.Interceptors(s)...)),
			&testpb.Request{}, grpc.WaitForReady(true))
		if got := s.Stats(); status.Code(err) != codes.DeadlineExceeded || got.Hedges != 0 ||
			d == unary && got.NotReady != 1 {
			t.Errorf("%v, %+v; want no hedge, as the connection is not ready", err, got)
		}
	})
}

// TestTrailer_OfAnAbandonedCall is for the race detector: an interceptor inside returns while gRPC
// is still ending the call, and may write its trailer.
func TestTrailer_OfAnAbandonedCall(t *testing.T) {
	for name, opts := range map[string]with{
		"unhedged": {hedge.WithMethods("/none/*")}, "may be hedged": {hedge.WithAllMethods()},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			cluster := serve(t, testserver.ByNumber(plan{Delay: ms, Code: codes.Internal, Trailer: metadata.Pairs("a", "b")}))
			s := hedgetest.New(t, append(opts, hedgetest.Throttle(10, 0.1), hedge.WithWarmup(1<<30, time.Second))...)
			left := make(chan error, 1)
			conn := dial(t, cluster, s, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, _ any,
				cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				go func() { left <- invoker(ctx, method, req, new(testpb.Reply), cc, opts...) }()
				time.Sleep(ms)
				return status.Error(codes.Unavailable, "early")
			}))
			for range 20 {
				_, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{})
				if status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
				<-left
			}
		})
	}
}

// TestRule01_AFailureWithAMessage: gRPC decodes a message into the primary's reply, or half of one,
// and the primary fails afterwards. If the primary is the outcome, the reply is as plain gRPC
// leaves it. If a hedge is, the reply is the hedge's, or as it was.
func TestRule01_AFailureWithAMessage(t *testing.T) {
	half := func(after time.Duration) step { return step{after: after, code: codes.Unavailable, half: true} }
	opts := with{hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/test.Service/Method")}
	scenes := []scene{
		{name: "no hedge was due", steps: []step{half(5 * ms)}, sent: times(0), at: 5 * ms, code: codes.Unavailable},
		{name: "both fail", steps: []step{half(15 * ms), fails(30*ms, codes.Internal)}, sent: times(0, 10),
			at: 40 * ms, code: codes.Unavailable},
		{name: "the hedge answers with an error", steps: []step{half(never), fails(5*ms, codes.NotFound)},
			sent: times(0, 10), at: 15 * ms, code: codes.NotFound, winner: 1},
		{name: "a hedge answers", steps: []step{half(never), answers(5 * ms)}, sent: times(0, 10), at: 15 * ms, winner: 1},
	}
	for i := range scenes {
		scenes[i].opts, scenes[i].doors = opts, doors[:2] // headers carry no message
	}
	playScenes(t, scenes)
}

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
		"with a trace":    {with{hedge.WithTrace((&told{}).trace()), hedge.WithLogger(slog.Default())}, 3},
		"with a throttle": {with{hedgetest.Throttle(10, 0.1)}, 5},
		"with a policy": {with{hedge.WithServiceConfig(hedging(`{"maxAttempts": 2, "hedgingDelay": "3600s"}`))},
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
	hedged := with{hedge.WithMinDelay(time.Second)}
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
