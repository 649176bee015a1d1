package interceptor_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpchedge/hedge"
	hedgebalancer "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// A slow primary gets a hedge, and the call returns the hedge's answer.
func ExampleUnary() {
	// this example is too short to learn a delay
	s, err := hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), hedge.WithWarmup(20, 10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	client, stop := testserver.SlowPrimary(grpc.WithChainUnaryInterceptor(interceptor.Unary(s)))
	defer stop()
	reply, err := client.Unary(context.Background(), &testpb.Request{})
	fmt.Println("answered by attempt", reply.GetAttempt(), err)
	// Output:
	// answered by attempt 1 <nil>
}

// One line hedges unary calls and streams. Interceptors passed to DialOptions see each call once.
func ExampleDialOptions() {
	s, err := hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*"))
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient("dns:///shop:443", interceptor.DialOptions(s,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(hedgebalancer.ServiceConfig))...) // hedges go to other backends
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output:
	// dns:///shop:443
}
