package stream_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// A token stream without a first token gets a second stream; the first token of either decides.
func ExampleInterceptor() {
	// A server on which the primary is stuck in a prefill, though its headers came at once.
	cluster, err := testserver.Start(testserver.Config{Script: func(a testserver.Attempt) testserver.Plan {
		if a.Number == 0 && a.ID > 1 {
			return testserver.Plan{HeaderAtOnce: true, Delay: time.Minute}
		}
		return testserver.Plan{HeaderAtOnce: true, Interval: time.Millisecond}
	}})
	if err != nil {
		panic(err)
	}
	defer cluster.Close()

	// this example is too short to learn a delay
	s, err := hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), hedge.WithWarmup(20, 10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	conn, err := cluster.Client(grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
	if err != nil {
		panic(err)
	}
	client := testpb.NewTestServiceClient(conn)
	if _, err := client.Unary(context.Background(), &testpb.Request{Id: 1}, hedge.Off()); err != nil { // connects
		panic(err)
	}

	tokens, err := client.ServerStream(context.Background(), &testpb.Request{Id: 2, Messages: 3})
	if err != nil {
		panic(err)
	}
	for range 3 {
		token, err := tokens.Recv()
		if err != nil {
			panic(err)
		}
		fmt.Println("token", token.Sequence, "of attempt", token.Attempt)
	}
	// Output:
	// token 0 of attempt 1
	// token 1 of attempt 1
	// token 2 of attempt 1
}
