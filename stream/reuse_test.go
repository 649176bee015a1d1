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

// TestRequest_FilledAnewForTheNextStream reads the answers to three streams that were opened with the same message, as works
// with plain gRPC: a generated method has encoded its request when it returns.
func TestRequest_FilledAnewForTheNextStream(t *testing.T) {
	for _, hedges := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(
				testserver.Plan{Ending: testserver.Hang}, testserver.Plan{Messages: 1})})
			if hedges == 0 {
				cluster = testserver.StartT(t, testserver.Config{InMemory: true})
			}
			client := dial(t, cluster, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(hedges)))
			req := &testpb.Request{Messages: 1}
			var streams []grpc.ServerStreamingClient[testpb.Reply]
			for id := range uint64(3) {
				req.Id = id + 1
				st, err := client.ServerStream(context.WithoutCancel(t.Context()), req)
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, st)
			}
			for i, st := range streams {
				reply, err := st.Recv()
				if err != nil || reply.Id != uint64(i+1) {
					t.Errorf("with %d hedges stream %d has %v, %v", hedges, i+1, reply, err)
				}
				for err == nil {
					_, err = st.Recv()
				}
			}
		})
	}
}
