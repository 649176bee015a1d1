package testserver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// Three backends, of which the second fails every call.
func Example() {
	cluster, err := testserver.Start(testserver.Config{
		Backends: 3,
		InMemory: true,
		Script: func(a testserver.Attempt) testserver.Plan {
			if a.Backend == 1 {
				return testserver.Plan{Code: codes.Unavailable, Message: "under repair"}
			}
			return testserver.Plan{Delay: a.Draw(testserver.LogNormal(5*time.Millisecond, 2*time.Millisecond))}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	conn, err := cluster.Client()
	if err != nil {
		log.Fatal(err)
	}
	client := testpb.NewTestServiceClient(conn)
	for id := uint64(0); cluster.BackendCounts(1).Attempts == 0; id++ {
		_, err = client.Unary(context.Background(), &testpb.Request{Id: id})
	}
	fmt.Println(status.Convert(err).Message())
	// Output: under repair
}

// A server that closes a connection on which the client cancels more than two calls in a minute.
func ExampleLimit() {
	cluster, err := testserver.Start(testserver.Config{
		InMemory: true,
		Script:   func(testserver.Attempt) testserver.Plan { return testserver.Plan{Ending: testserver.Hang, After: 1} },
		Limit:    &testserver.Limit{Resets: 2, Per: time.Minute, Close: testserver.CloseCalm, Debug: "too many resets"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	conn, err := cluster.Client()
	if err != nil {
		log.Fatal(err)
	}
	client := testpb.NewTestServiceClient(conn)
	// start returns a stream that the server has answered.
	start := func(ctx context.Context) grpc.ServerStreamingClient[testpb.Reply] {
		stream, err := client.ServerStream(ctx, &testpb.Request{Messages: 2}, grpc.WaitForReady(true))
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil && status.Code(err) != codes.Unavailable {
			log.Fatal(err)
		}
		return stream
	}
	stream := start(context.Background())
	for cluster.ConnCounts().Cuts == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		start(ctx)
		cancel()
	}
	_, err = stream.Recv()
	fmt.Println(status.Convert(err).Message())
	// Output: closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too many resets"
}

func ExampleParseDistribution() {
	distribution, err := testserver.ParseDistribution("lognormal:5ms,2ms")
	fmt.Println(distribution != nil, err)
	_, err = testserver.ParseDistribution("lognormal:5ms")
	fmt.Println(err)
	// Output:
	// true <nil>
	// distribution "lognormal:5ms": want lognormal:mean,sd
}
