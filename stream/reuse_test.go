package stream_test

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRequest_FilledAnewForTheNextStream reads the answers to three streams that were opened with
// the same message, as works with plain gRPC: a generated method has encoded its request when it
// returns.
func TestRequest_FilledAnewForTheNextStream(t *testing.T) {
	for _, hedges := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			plans := []testserver.Plan{{Ending: testserver.Hang}, {Messages: 1}}
			_, client := inMemory(t, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(hedges)), plans[1-hedges:]...)
			req := &testpb.Request{Messages: 1}
			var streams []grpc.ServerStreamingClient[testpb.Reply]
			for id := range uint64(3) {
				req.Id = id + 1
				streams = append(streams, open(context.WithoutCancel(t.Context()), t, client, req))
			}
			for i, st := range streams {
				if n, attempt, err := receive(st, &testpb.Request{Id: uint64(i + 1)}); n != 1 || attempt != hedges || err != nil {
					t.Errorf("with %d hedges stream %d has %d messages of attempt %d, %v", hedges, i+1, n, attempt, err)
				}
			}
		})
	}
}

// TestDryRun_OfAMessageThatCannotBeMoved has a late stream that would not be hedged if there were no
// dry run.
func TestDryRun_OfAMessageThatCannotBeMoved(t *testing.T) {
	for _, into := range []any{new(testpb.Reply), new(any)} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithDryRun(true))
			cluster, _ := inMemory(t, s, delivers(50*ms))
			conn := cluster.ClientT(t, hedging(s))
			st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
			if err == nil {
				err = st.SendMsg(&testpb.Request{Messages: 1})
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = st.RecvMsg(into)
			_, moved := into.(*testpb.Reply)
			if got := s.Stats(); (got.DryRun == 1) != moved || (got.NotReplayable == 1) == moved {
				t.Errorf("%T: %+v", into, got)
			}
		})
	}
}
