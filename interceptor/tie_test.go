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
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

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
			conn := cluster.ClientT(t, hedgetest.Interceptors(s)...)
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
			if stats.Hedged != int64(callers*calls) || stats.PrimaryWins != wins[0].Load() ||
				stats.HedgeWins != wins[1].Load() {
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
	stale := metadata.Pairs("attempt", "stale")
	*got = observed{header: stale.Copy(), trailer: stale.Copy()}
	var finish []error
	opts := []grpc.CallOption{hedge.After(0), grpc.Header(&got.header), grpc.Trailer(&got.trailer), grpc.Peer(&got.peer),
		grpc.OnFinish(func(err error) { finish = append(finish, err) })}
	said := []string{} // by each part of the outcome
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
	want, fails := map[door]uint32{unary: 1, streaming: req.Messages}[d], req.Id%5 == 4
	if fails || d == streaming && req.Id%5 == 3 {
		want = 0
	}
	switch {
	case fails && status.Code(err) == codes.NotFound:
		said = append(said, status.Convert(err).Message())
	case fails || err != nil:
		return 0, fmt.Errorf("ended with %v", err)
	default:
		said = append(said, first(got.header))
	}
	said = append(said, first(got.trailer))
	number, convErr := strconv.Atoi(said[0])
	if convErr != nil || number > 1 || len(slices.Compact(said)) != 1 || received != want {
		return 0, fmt.Errorf("%d messages, want %d; the parts are of the attempts %q", received, want, said)
	}
	if len(finish) != 1 || status.Code(finish[0]) != status.Code(err) || got.peer.Addr == nil {
		return 0, fmt.Errorf("ended with %v; OnFinish %v, peer %v", err, finish, got.peer)
	}
	return number, nil
}
