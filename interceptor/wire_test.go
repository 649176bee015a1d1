package interceptor_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial returns a client of the cluster's that hedges as s says and is connected to every backend.
func dial(t *testing.T, cluster *testserver.Cluster, s *hedge.Scheduler, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := cluster.ClientT(t, append(hedgetest.Interceptors(s), options...)...)
	testserver.ConnectT(t, conn)
	return conn
}

// callOver makes a call over gRPC, and returns the last message that it receives.
func callOver(ctx context.Context, d door, client testpb.TestServiceClient, req *testpb.Request,
	opts ...grpc.CallOption) (reply *testpb.Reply, err error) {
	if d == unary {
		return client.Unary(ctx, req, opts...)
	}
	st, err := client.ServerStream(ctx, req, opts...)
	if err == nil && d == headersFirst {
		_, err = st.Header()
	}
	for err == nil {
		var m *testpb.Reply
		if m, err = st.Recv(); err == nil {
			reply = m
		}
	}
	if err == io.EOF {
		err = nil
	}
	return reply, err
}

// TestRule07_LoserIsCancelledOnTheWire reads the frames off real connections: a loser's stream is
// reset with CANCEL as soon as the winner has answered, and a winner's stream never is.
func TestRule07_LoserIsCancelledOnTheWire(t *testing.T) {
	for _, tc := range []struct {
		name   string
		plans  []testserver.Plan
		loser  int
		answer codes.Code
	}{
		{"hedge wins", []testserver.Plan{{Ending: testserver.Hang}, {Delay: ms}}, 0, codes.OK},
		{"hedge wins, though the primary would go on", []testserver.Plan{{Delay: 5 * time.Second, HeaderAtOnce: true,
			Messages: 1000, Interval: ms}, {Delay: ms}}, 0, codes.OK},
		{"primary wins", []testserver.Plan{{Delay: 100 * ms}, {Ending: testserver.Hang}}, 1, codes.OK},
		{"hedge wins with a final error", []testserver.Plan{{Ending: testserver.Hang}, {Delay: ms, Code: codes.NotFound}},
			0, codes.NotFound},
	} {
		for _, d := range []door{unary, streaming} {
			t.Run(tc.name+", "+string(d), func(t *testing.T) {
				const calls = 3
				cluster := testserver.StartT(t, testserver.Config{Script: testserver.ByNumber(tc.plans...)})
				wire := testserver.NewWire(cluster.Dial)
				s := hedgetest.Fixed(t, 20*ms, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/*/*"))
				client := testpb.NewTestServiceClient(dial(t, cluster, s, grpc.WithContextDialer(wire.Dial)))
				for i := range calls {
					reply, err := callOver(t.Context(), d, client, &testpb.Request{Id: uint64(i + 1), Messages: 20})
					if status.Code(err) != tc.answer || err == nil && reply.Attempt != uint32(1-tc.loser) {
						t.Fatalf("call %d: %v, %v", i, reply, err)
					}
				}
				cluster.WaitIdleT(t)
				cluster.Close()
				wire.Wait()

				// One connection, with two streams for each call. The records have the loser of the two.
				streams := wire.Frames(http2.FrameHeaders, true)
				resets := wire.Frames(http2.FrameRSTStream, true)
				if len(streams) != 2*calls || len(resets) != calls {
					t.Fatalf("%d streams and %d resets, want %d and %d", len(streams), len(resets), 2*calls, calls)
				}
				for i, reset := range resets {
					one, two := streams[2*i].Stream, streams[2*i+1].Stream
					if reset.Stream != one && reset.Stream != two || reset.Code != http2.ErrCodeCancel {
						t.Errorf("call %d: RST_STREAM %v on stream %d, want CANCEL on %d or %d", i, reset.Code, reset.Stream, one, two)
					}
				}
				for _, r := range cluster.Records() {
					if loses := r.Number == tc.loser; r.WasCancelled() != loses || loses && len(r.Sent) > 0 {
						t.Errorf("attempt %d of request %d: cancelled %v, %d messages", r.Number, r.ID, r.WasCancelled(), len(r.Sent))
					}
				}
			})
		}
	}
}

// TestRule08_NothingIsLeft ends hedged calls in every way there is; TestMain looks for goroutines
// afterwards.
func TestRule08_NothingIsLeft(t *testing.T) {
	hang := testserver.Plan{Ending: testserver.Hang}
	for _, tc := range []struct {
		name     string
		plans    []testserver.Plan
		deadline time.Duration
		cancel   time.Duration
		want     codes.Code
	}{
		{"hedge wins", []testserver.Plan{hang, {}}, never, never, codes.OK},
		{"primary wins", []testserver.Plan{{Delay: 5 * ms}, hang}, never, never, codes.OK},
		{"deadline", []testserver.Plan{hang, hang}, 10 * ms, never, codes.DeadlineExceeded},
		{"cancel", []testserver.Plan{hang, hang}, never, 10 * ms, codes.Canceled},
		{"both fail", []testserver.Plan{{Delay: 5 * ms, Code: codes.Internal}, {Delay: 8 * ms, Code: codes.Aborted}},
			never, never, codes.Internal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{Script: testserver.ByNumber(tc.plans...)})
			// what fails here means nothing
			conn := dial(t, cluster, hedgetest.Fixed(t, 2*ms, hedge.WithMaxHedges(1), hedge.WithGuard(false)))
			client, group := testpb.NewTestServiceClient(conn), sync.WaitGroup{}
			for range 4 {
				group.Go(func() {
					for i := range 10 {
						ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
						timer := time.AfterFunc(tc.cancel, cancel)
						_, err := callOver(ctx, doors[i%len(doors)], client, &testpb.Request{Id: uint64(i), Messages: 1})
						timer.Stop()
						cancel()
						if status.Code(err) != tc.want {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			cluster.WaitIdleT(t)
			// A hedge cut short before it reached the server is none there.
			if got := cluster.Counts(); got.Hedges < 10 || got.InFlight != 0 {
				t.Errorf("%+v", got)
			}
			conn.Close()
			cluster.Close()
			goleak.VerifyNone(t)
		})
	}
}
