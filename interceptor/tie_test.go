package interceptor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// tieServer lets the two attempts of a call meet and then answers both, microseconds apart. Each answer says in
// reply, header, trailer and error which attempt it is.
type tieServer struct {
	testpb.UnimplementedTestServiceServer
	ties testserver.Ties
}

func (s *tieServer) Unary(ctx context.Context, req *testpb.Request) (*testpb.Reply, error) {
	attempt := hedge.PreviousAttempts(ctx)
	if err := s.ties.Meet(ctx, req.Id); err != nil {
		return nil, err
	}
	number := metadata.Pairs("attempt", strconv.Itoa(attempt))
	_ = grpc.SetHeader(ctx, number)
	_ = grpc.SetTrailer(ctx, number)
	if req.Id%5 == 4 { // one call in five is answered with an error, one that ends the race
		return nil, status.Error(codes.NotFound, strconv.Itoa(attempt))
	}
	payload := slices.Repeat([]byte{byte(attempt)}, int(req.ReplyBytes))
	return &testpb.Reply{Id: req.Id, Attempt: uint32(attempt), Payload: payload}, nil
}

// TestRule01_NearTies makes calls whose two attempts answer within microseconds of each other, by callers that use one reply
// again and again and scribble on it the moment a call returns. Under the race detector, whatever a loser still wrote would
// show.
func TestRule01_NearTies(t *testing.T) {
	const callers = 8
	calls := longtest.Size(100, 200)
	s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1))
	conn := testserver.ServiceT(t, &tieServer{}, grpc.WithUnaryInterceptor(interceptor.Unary(s)))
	client := testpb.NewTestServiceClient(conn)
	testserver.ConnectT(t, conn)

	var wins [2]atomic.Int64
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			req, reply := &testpb.Request{ReplyBytes: 64}, &testpb.Reply{}
			for i := range calls {
				req.Id = uint64(c*calls + i)
				attempt, err := tieCall(conn, client, req, reply)
				if err != nil {
					t.Errorf("call %d: %v", req.Id, err)
					return
				}
				wins[attempt].Add(1)
				// The caller owns both messages again.
				for i := range reply.Payload {
					reply.Payload[i] = 0xff
				}
				reply.Id, reply.Attempt = 1<<63, 99
				req.ReplyBytes = uint32(rand.IntN(200))
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
}

// tieCall makes one call and returns which attempt its outcome is from, once all parts of it say the same.
func tieCall(conn *grpc.ClientConn, client testpb.TestServiceClient, req *testpb.Request, reply *testpb.Reply) (int, error) {
	header, trailer := metadata.Pairs("attempt", "stale"), metadata.Pairs("attempt", "stale")
	var from peer.Peer
	finished := 0
	var finish error
	err := conn.Invoke(context.Background(), testpb.TestService_Unary_FullMethodName, req, reply,
		hedge.After(0), grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from),
		grpc.OnFinish(func(err error) { finished, finish = finished+1, err }))

	var attempt string
	switch {
	case req.Id%5 == 4:
		if status.Code(err) != codes.NotFound {
			return 0, fmt.Errorf("ended with %v, want NotFound", err)
		}
		attempt = status.Convert(err).Message()
	case err != nil:
		return 0, err
	default:
		attempt = strconv.Itoa(int(reply.Attempt))
		if reply.Id != req.Id || len(reply.Payload) != int(req.ReplyBytes) {
			return 0, fmt.Errorf("wrong reply: %v", reply)
		}
		for _, b := range reply.Payload {
			if b != byte(reply.Attempt) {
				return 0, fmt.Errorf("reply mixed from two attempts: %v", reply)
			}
		}
	}
	number, convErr := strconv.Atoi(attempt)
	switch {
	case convErr != nil || number > 1:
		return 0, fmt.Errorf("attempt %q", attempt)
	case finished != 1 || finish != err:
		return 0, fmt.Errorf("OnFinish ran %d times, with %v", finished, finish)
	case from.Addr == nil:
		return 0, fmt.Errorf("no peer")
	case !slices.Equal(trailer.Get("attempt"), []string{attempt}):
		return 0, fmt.Errorf("trailer %v with the outcome of attempt %s", trailer, attempt)
	case err == nil && !slices.Equal(header.Get("attempt"), []string{attempt}):
		return 0, fmt.Errorf("header %v with the outcome of attempt %s", header, attempt)
	}
	return number, nil
}
