package interceptor_test

import (
	"context"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
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
// reset with CANCEL as soon as the winner has answered, and a winner's stream never is. If the
// caller gives up, both are losers. Nothing is left then.
func TestRule07_LoserIsCancelledOnTheWire(t *testing.T) {
	hang := testserver.Plan{Ending: testserver.Hang}
	for _, tc := range []struct {
		name   string
		plans  []testserver.Plan
		winner int // -1: none
		answer codes.Code
	}{
		{name: "hedge wins", plans: []testserver.Plan{hang, {Delay: ms}}, winner: 1},
		{name: "hedge wins, though the primary would go on",
			plans: []testserver.Plan{{Delay: 5 * time.Second, HeaderAtOnce: true,
				Messages: 1000, Interval: ms}, {Delay: ms}}, winner: 1},
		{name: "primary wins", plans: []testserver.Plan{{}, hang}},
		{name: "hedge wins with a final error", plans: []testserver.Plan{hang, {Delay: ms, Code: codes.NotFound}},
			winner: 1, answer: codes.NotFound},
		{name: "the caller gives up", plans: []testserver.Plan{hang, hang}, winner: -1, answer: codes.Canceled},
	} {
		for _, d := range doors[:2] {
			t.Run(tc.name+", "+string(d), func(t *testing.T) {
				const calls = 3
				hedged := make(chan struct{}, calls)
				arrived := func() { // the hedge has
					select {
					case <-hedged:
					case <-time.After(10 * time.Second):
					}
				}
				cluster := testserver.StartT(t, testserver.Config{Script: func(a testserver.Attempt) testserver.Plan {
					if a.Number == 1 {
						hedged <- struct{}{}
					} else if tc.winner == 0 {
						arrived()
					}
					return tc.plans[a.Number]
				}})
				wire := testserver.NewWire(cluster.Dial)
				s := hedgetest.Fixed(t, 20*ms, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/*/*"))
				client := testpb.NewTestServiceClient(dial(t, cluster, s, grpc.WithContextDialer(wire.Dial)))
				for i := range calls {
					ctx, cancel := context.WithCancel(t.Context())
					if tc.winner < 0 {
						go func() { arrived(); cancel() }()
					}
					reply, err := callOver(ctx, d, client, &testpb.Request{Id: uint64(i + 1), Messages: 20})
					if cancel(); status.Code(err) != tc.answer || err == nil && int(reply.Attempt) != tc.winner {
						t.Fatalf("call %d: %v, %v", i, reply, err)
					}
				}
				cluster.WaitIdleT(t)
				cluster.Close()
				wire.Wait()
				if err := goleak.Find(); err != nil {
					t.Error(err)
				}

				// One connection, with two streams for each call. The records have the losers of
				// the two.
				lost := calls
				if tc.winner < 0 {
					lost = 2 * calls
				}
				streams := wire.Frames(http2.FrameHeaders, true)
				resets := wire.Frames(http2.FrameRSTStream, true)
				if len(streams) != 2*calls || len(resets) != lost {
					t.Fatalf("%d streams and %d resets, want %d and %d", len(streams), len(resets), 2*calls, lost)
				}
				for i, reset := range resets {
					of := i * calls / lost
					one, two := streams[2*of].Stream, streams[2*of+1].Stream
					if reset.Stream != one && reset.Stream != two || reset.Code != http2.ErrCodeCancel {
						t.Errorf("call %d: RST_STREAM %v on stream %d, want CANCEL on %d or %d", of, reset.Code, reset.Stream, one, two)
					}
				}
				for _, r := range cluster.Records() {
					if loses := r.Number != tc.winner; r.WasCancelled() != loses || loses && len(r.Sent) > 0 {
						t.Errorf("attempt %d of request %d: cancelled %v, %d messages", r.Number, r.ID, r.WasCancelled(), len(r.Sent))
					}
				}
			})
		}
	}
}

// TestRule01_NearTies makes calls with two attempts that meet at the server and then answer within
// microseconds of each other. Messages, header, trailer and error name their attempt. One call in
// five is answered with an error, and one stream in five is empty. Callers reuse their memory, and
// scribble on it as soon as they have it. The race detector would find any use of it by a loser.
func TestRule01_NearTies(t *testing.T) {
	const callers = 8
	calls := longtest.Size(100, 200)
	for _, d := range []door{unary, streaming} {
		t.Run(string(d), func(t *testing.T) {
			var ties testserver.Ties
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					_ = ties.Meet(t.Context(), a.ID)
					number := strconv.Itoa(a.Number)
					said := metadata.Pairs("attempt", number)
					if a.ID%5 == 4 {
						return testserver.Plan{Trailer: said, Code: codes.NotFound, Message: number}
					}
					return testserver.Plan{Header: said, Trailer: said, Empty: d == streaming && a.ID%5 == 3}
				}})
			s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1))
			conn := dial(t, cluster, s)
			var wins [2]atomic.Int64
			var group sync.WaitGroup
			for c := range callers {
				group.Go(func() {
					req, reply, got := &testpb.Request{}, &testpb.Reply{}, observed{}
					for i := range calls {
						req.Id, req.Messages, req.ReplyBytes = uint64(c*calls+i), 3, uint32(i)
						number, err := strconv.Atoi(tie(t, conn, d, req, reply, &got))
						if err != nil || t.Failed() {
							return
						}
						wins[number].Add(1)
						proto.Reset(req)
						clear(got.header)
						clear(got.trailer)
					}
				})
			}
			group.Wait()
			if got := s.Stats(); got.Hedged != int64(callers*calls) || got.PrimaryWins != wins[0].Load() ||
				got.HedgeWins != wins[1].Load() || got.PrimaryWins == 0 || got.HedgeWins == 0 {
				t.Errorf("won by the primary %d, by the hedge %d: %+v", wins[0].Load(), wins[1].Load(), got)
			}
		})
	}
}

// tie makes one call, checks that all parts of its outcome are from one attempt, and returns which.
func tie(t *testing.T, conn *grpc.ClientConn, d door, req *testpb.Request, reply *testpb.Reply, got *observed) string {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stale := metadata.Pairs("attempt", "stale")
	*got = observed{header: stale.Copy(), trailer: stale.Copy()}
	var finish []codes.Code
	opts := []grpc.CallOption{hedge.After(0), grpc.Header(&got.header), grpc.Trailer(&got.trailer), grpc.Peer(&got.peer),
		grpc.OnFinish(func(err error) { finish = append(finish, status.Code(err)) })}
	var said []string // by each part of the outcome
	received := uint32(0)
	take := func() error {
		err := testserver.Check(req, received, reply)
		said = append(said, strconv.Itoa(int(reply.Attempt)))
		received++
		for i := range reply.Payload { // it is the caller's
			reply.Payload[i] = 0xff
		}
		reply.Id, reply.Attempt = 1<<63, 99
		return err
	}
	var err error
	code, messages := codes.OK, req.Messages
	if d == unary {
		messages = 1
		if err = conn.Invoke(ctx, testpb.TestService_Unary_FullMethodName, req, reply, opts...); err == nil {
			err = take()
		}
	} else {
		var st grpc.ClientStream
		if st, err = conn.NewStream(ctx, &testpb.TestService_ServiceDesc.Streams[0],
			testpb.TestService_ServerStream_FullMethodName, opts...); err == nil {
			err = st.SendMsg(req)
		}
		for err == nil {
			if err = st.RecvMsg(reply); err == nil {
				err = take()
			}
		}
		if err == io.EOF {
			err = nil
		}
		said = append(said, first(st.Trailer()))
	}
	switch {
	case req.Id%5 == 4:
		code, messages = codes.NotFound, 0
		said = append(said, status.Convert(err).Message())
	case d == streaming && req.Id%5 == 3:
		messages = 0
		fallthrough
	default:
		said = append(said, first(got.header))
	}
	said = slices.Compact(append(said, first(got.trailer)))
	if status.Code(err) != code || received != messages || len(said) != 1 || !slices.Equal(finish, []codes.Code{code}) ||
		got.peer.Addr == nil {
		t.Errorf("call %d: %v after %d messages; the parts are of the attempts %q; OnFinish %v, peer %v", req.Id, err,
			received, said, finish, got.peer)
	}
	return said[0]
}
