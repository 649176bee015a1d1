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

// A stream whose first token is late gets a second stream; the first token of either decides.
func ExampleInterceptor() {
	// this example is too short to learn a delay
	s, err := hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), hedge.WithWarmup(20, 10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	// A server on which the primary is stuck in a prefill, though its headers come at once.
	client, stop := testserver.SlowPrimary(grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
	defer stop()
	tokens, err := client.ServerStream(context.Background(), &testpb.Request{Messages: 3})
	for token := new(testpb.Reply); err == nil; {
		if token, err = tokens.Recv(); err == nil {
			fmt.Println("token", token.Sequence, "of attempt", token.Attempt)
		}
	}
	fmt.Println(err)
	// Output:
	// token 0 of attempt 1
	// token 1 of attempt 1
	// token 2 of attempt 1
	// EOF
}
