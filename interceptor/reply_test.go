package interceptor_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
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
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					return testserver.Plan{Delay: time.Duration(20-10*a.Number) * ms,
						Header: metadata.Pairs("attempt", fmt.Sprint(a.Number))}
				}})
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
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
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
	for name, opts := range map[string][]hedge.Option{
		"unhedged": {hedge.WithMethods("/none/*")}, "may be hedged": {hedge.WithAllMethods()},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(
				testserver.Plan{Delay: ms, Code: codes.Internal, Trailer: metadata.Pairs("a", "b")})})
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
	opts := []hedge.Option{hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/test.Service/Method")}
	scenes := []scene{
		{name: "no hedge was due", steps: []step{half(5 * ms)}, sent: times(0), at: 5 * ms,
			code: codes.Unavailable},
		{name: "both fail", steps: []step{half(15 * ms), fails(30*ms, codes.Internal)}, sent: times(0, 10),
			at: 40 * ms, code: codes.Unavailable},
		{name: "the hedge answers with an error", steps: []step{half(never), fails(5*ms, codes.NotFound)},
			sent: times(0, 10), at: 15 * ms, code: codes.NotFound, winner: 1},
		{name: "the hedge answers", steps: []step{half(never), answers(5 * ms)}, sent: times(0, 10), at: 15 * ms,
			winner: 1},
	}
	for i := range scenes {
		scenes[i].opts, scenes[i].doors = opts, doors[:2] // headers carry no message
	}
	playScenes(t, scenes)
}
