package interceptor_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	testpb "github.com/grpchedge/hedge/proto"
)

// stalling is a server that takes an hour for the first attempt at a call.
type stalling struct {
	testpb.UnimplementedTestServiceServer
	attempts atomic.Int64
}

func (s *stalling) Unary(ctx context.Context, in *testpb.Request) (*testpb.Reply, error) {
	if s.attempts.Add(1) == 1 {
		select {
		case <-time.After(time.Hour):
		case <-ctx.Done(): // canceled: another attempt has answered
			return nil, ctx.Err()
		}
	}
	return &testpb.Reply{Id: in.GetId()}, nil
}

// The recipe of docs/testing.md: a stalled call is hedged after 10 ms of virtual time.
func TestRecipe_AStalledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, backend := bufconn.Listen(1<<20), &stalling{}
		server := grpc.NewServer()
		testpb.RegisterTestServiceServer(server, backend)
		go server.Serve(listener)
		defer server.Stop()

		s, err := hedge.New(hedge.WithAllMethods(), hedge.WithBudgetPercent(400),
			hedge.WithTrigger(hedge.Fixed(10*time.Millisecond)))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient("passthrough:///backend", interceptor.DialOptions(s,
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }),
			grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()

		start := time.Now()
		reply, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{Id: 7})
		if took := time.Since(start); err != nil || reply.GetId() != 7 || took != 10*time.Millisecond {
			t.Errorf("reply %v after %v, error %v; want the hedge's, after 10 ms", reply, took, err)
		}
		if got := s.Stats().HedgeWins; got != 1 {
			t.Errorf("%d hedges won, want 1", got)
		}
	})
}
