package interceptor_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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

// Hedges of calls to one region go to another region.
func ExampleHedgeTo() {
	s, err := hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), hedge.WithFailover())
	if err != nil {
		panic(err)
	}
	down := func(testserver.Attempt) testserver.Plan { return testserver.Plan{Code: codes.Unavailable} }
	eu, err := testserver.Start(testserver.Config{Name: "eu", Script: down})
	if err != nil {
		panic(err)
	}
	defer eu.Close()
	us, err := testserver.Start(testserver.Config{Name: "us"})
	if err != nil {
		panic(err)
	}
	defer us.Close()

	far, err := us.Client()
	if err != nil {
		panic(err)
	}
	conn, err := eu.Client(interceptor.DialOptions(s, interceptor.HedgeTo(far))...)
	if err != nil {
		panic(err)
	}
	_, err = testpb.NewTestServiceClient(conn).Unary(context.Background(), &testpb.Request{})
	fmt.Println(err, s.Stats().Failovers)
	// Output:
	// <nil> 1
}
