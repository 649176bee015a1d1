package hedge_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/proto/inferencepb"
)

// model answers each request of a stream with a token. The first stream gets none.
type model struct {
	inferencepb.UnimplementedGRPCInferenceServiceServer
	streams atomic.Int64
}

func (m *model) ModelStreamInfer(st grpc.BidiStreamingServer[inferencepb.ModelInferRequest,
	inferencepb.ModelStreamInferResponse]) error {
	if m.streams.Add(1) == 1 {
		<-st.Context().Done() // until the other stream has won
		return st.Context().Err()
	}
	for {
		req, err := st.Recv()
		if err != nil {
			return err
		}
		token := &inferencepb.ModelInferResponse{Id: "token of " + req.GetId()}
		if err := st.Send(&inferencepb.ModelStreamInferResponse{InferResponse: token}); err != nil {
			return err
		}
	}
}

// The caller of a bidirectional method sends one request, as for Triton's ModelStreamInfer.
func ExampleWithSingleRequest() {
	server := grpc.NewServer()
	inferencepb.RegisterGRPCInferenceServiceServer(server, &model{})
	listener := must(net.Listen("tcp", "localhost:0"))
	go server.Serve(listener)
	defer server.Stop()

	const method = inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName
	s := must(hedge.New(hedge.WithReadOnlyMethods(method), hedge.WithSingleRequest(method),
		hedge.WithWarmup(20, 10*time.Millisecond))) // this example is too short to learn a delay
	conn := must(grpc.NewClient(listener.Addr().String(),
		interceptor.DialOptions(s, grpc.WithTransportCredentials(insecure.NewCredentials()))...))
	defer conn.Close()

	stream := must(inferencepb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(context.Background()))
	if err := stream.Send(&inferencepb.ModelInferRequest{Id: "prompt"}); err != nil {
		panic(err)
	}
	fmt.Println(must(stream.Recv()).GetInferResponse().GetId())
	// Output: token of prompt
}
