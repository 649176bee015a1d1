package interceptor_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// tieServer lets the two attempts of a call meet and then answers both, microseconds apart. Each
// answer says in messages, header, trailer and error which attempt it is. One call in five is
// answered with an error, and one stream in five is empty.
type tieServer struct {
	testpb.UnimplementedTestServiceServer
	ties testserver.Ties
}

func (s *tieServer) answer(ctx context.Context, req *testpb.Request) (*testpb.Reply, error) {
	attempt := hedge.PreviousAttempts(ctx)
	if err := s.ties.Meet(ctx, req.Id); err != nil {
		return nil, err
	}
	number := metadata.Pairs("attempt", strconv.Itoa(attempt))
	_ = grpc.SetHeader(ctx, number)
	_ = grpc.SetTrailer(ctx, number)
	if req.Id%5 == 4 {
		return nil, status.Error(codes.NotFound, strconv.Itoa(attempt))
	}
	return &testpb.Reply{Id: req.Id, Attempt: uint32(attempt),
		Payload: slices.Repeat([]byte{byte(attempt)}, int(req.ReplyBytes))}, nil
}

func (s *tieServer) Unary(ctx context.Context, req *testpb.Request) (*testpb.Reply, error) {
	return s.answer(ctx, req)
}

func (s *tieServer) ServerStream(req *testpb.Request, st grpc.ServerStreamingServer[testpb.Reply]) error {
	reply, err := s.answer(st.Context(), req)
	for n := uint32(0); err == nil && n < messagesOf(req, streaming); n++ {
		reply.Sequence = n
		err = st.Send(reply)
	}
	return err
}

// messagesOf is how many messages answer a request.
func messagesOf(req *testpb.Request, d door) uint32 {
	switch {
	case req.Id%5 == 4 || d == streaming && req.Id%5 == 3:
		return 0
	case d == unary:
		return 1
	}
	return req.Messages
}

// TestRule01_NearTies makes calls with two attempts that answer within microseconds of each other.
// Callers reuse their memory, and scribble on it as soon as they have it. The race detector would
// find any use of it by a loser.
func TestRule01_NearTies(t *testing.T) {
	const callers = 8
	calls := longtest.Size(100, 200)
	for _, d := range []door{unary, streaming} {
		t.Run(string(d), func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1))
			conn := testserver.ServiceT(t, &tieServer{}, hedgetest.Interceptors(s)...)
			testserver.ConnectT(t, conn)
			var wins [2]atomic.Int64
			var group sync.WaitGroup
			for c := range callers {
				group.Go(func() {
					req, reply, got := &testpb.Request{}, &testpb.Reply{}, observed{}
					for i := range calls {
						req.Id, req.Messages, req.ReplyBytes = uint64(c*calls+i), 3, uint32(i)
						attempt, err := tieCall(t.Context(), conn, d, req, reply, &got)
						if err != nil {
							t.Errorf("call %d: %v", req.Id, err)
							return
						}
						wins[attempt].Add(1)
						proto.Reset(req)
						clear(got.header)
						clear(got.trailer)
					}
				})
			}
			group.Wait()
			stats := s.Stats()
			t.Logf("won by the primary %d, by the hedge %d", wins[0].Load(), wins[1].Load())
			if stats.Hedged != int64(callers*calls) || stats.PrimaryWins != wins[0].Load() || stats.HedgeWins != wins[1].Load() {
				t.Errorf("%+v", stats)
			}
			if wins[0].Load() == 0 || wins[1].Load() == 0 {
				t.Error("one side won every race: these are no ties")
			}
		})
	}
}

// tieCall makes one call and returns which attempt its outcome is from, once all parts of it say
// the same.
func tieCall(ctx context.Context, conn *grpc.ClientConn, d door, req *testpb.Request, reply *testpb.Reply,
	got *observed) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	got.peer, got.header, got.trailer = peer.Peer{}, metadata.Pairs("attempt", "stale"), metadata.Pairs("attempt", "stale")
	var finish []error
	opts := []grpc.CallOption{hedge.After(0), grpc.Header(&got.header), grpc.Trailer(&got.trailer), grpc.Peer(&got.peer),
		grpc.OnFinish(func(err error) { finish = append(finish, err) })}
	said := []string{} // by each part of the outcome
	received := uint32(0)
	take := func() error {
		if reply.Id != req.Id || reply.Sequence != received ||
			!slices.Equal(reply.Payload, slices.Repeat([]byte{byte(reply.Attempt)}, int(req.ReplyBytes))) {
			return fmt.Errorf("message %d is %v", received, reply)
		}
		said = append(said, strconv.Itoa(int(reply.Attempt)))
		received++
		for i := range reply.Payload { // it is the caller's
			reply.Payload[i] = 0xff
		}
		reply.Id, reply.Attempt = 1<<63, 99
		return nil
	}
	var err error
	if d == unary {
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
	if status.Code(err) == codes.NotFound {
		said = append(said, status.Convert(err).Message())
	} else if said = append(said, first(got.header)); err != nil {
		return 0, err
	}
	said = append(said, first(got.trailer))
	number, convErr := strconv.Atoi(said[0])
	if convErr != nil || number > 1 || len(slices.Compact(said)) != 1 || received != messagesOf(req, d) ||
		(err != nil) != (req.Id%5 == 4) || len(finish) != 1 || status.Code(finish[0]) != status.Code(err) ||
		got.peer.Addr == nil {
		return 0, fmt.Errorf("parts are of the attempts %q: %d messages, then %v; OnFinish %v, peer %v", said, received, err,
			finish, got.peer)
	}
	return number, nil
}
