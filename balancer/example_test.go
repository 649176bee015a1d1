package balancer_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer" // hedge_other_backend
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// If the backend of a call stalls, another backend answers.
func Example() {
	// Three backends. The backend of the primary stalls, for hedges too.
	stuck := make(chan int, 1)
	cluster, err := testserver.Start(testserver.Config{Backends: 3, Script: func(a testserver.Attempt) testserver.Plan {
		if a.Number == 0 && a.ID == 1 {
			stuck <- a.Backend
			return testserver.Plan{Ending: testserver.Hang}
		}
		return testserver.Plan{}
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
	conn, err := cluster.Client(
		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [
			{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`))
	if err != nil {
		panic(err)
	}
	client := testpb.NewTestServiceClient(conn)
	for len(s.Methods()) == 0 || s.Methods()[0].Ready < 3 { // connects to all three
		if _, err := client.Unary(context.Background(), &testpb.Request{}, hedge.Off()); err != nil {
			panic(err)
		}
	}

	reply, err := client.Unary(context.Background(), &testpb.Request{Id: 1})
	if err != nil {
		panic(err)
	}
	fmt.Println("attempt", reply.Attempt, "answered, from another backend:", int(reply.Backend) != <-stuck)
	fmt.Println("hedges that met the same backend again:", s.Stats().SameBackend)
	// Output:
	// attempt 1 answered, from another backend: true
	// hedges that met the same backend again: 0
}

// Behind one address, with gRPC's default pick_first, all calls share one connection. With two, a
// hedge uses the other one.
func Example_connections() {
	cluster, err := testserver.Start(testserver.Config{Script: func(a testserver.Attempt) testserver.Plan {
		if a.Number == 0 && a.ID == 1 {
			return testserver.Plan{Ending: testserver.Hang}
		}
		return testserver.Plan{}
	}})
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	s, err := hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), hedge.WithWarmup(20, 10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	conn, err := cluster.Client(
		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [
			{"hedge_other_backend": {"childPolicy": [{"pick_first": {}}], "connections": 2}}]}`))
	if err != nil {
		panic(err)
	}
	client := testpb.NewTestServiceClient(conn)
	for len(s.Methods()) == 0 || s.Methods()[0].Connections < 2 { // makes both
		if _, err := client.Unary(context.Background(), &testpb.Request{}, hedge.Off()); err != nil {
			panic(err)
		}
	}
	if _, err := client.Unary(context.Background(), &testpb.Request{Id: 1}); err != nil {
		panic(err)
	}
	row := s.Methods()[0]
	fmt.Println("backends:", row.Ready, "connections:", row.Connections)
	fmt.Println("hedges:", row.Hedges, "over a used connection:", row.SameBackend)
	// Output:
	// backends: 1 connections: 2
	// hedges: 1 over a used connection: 0
}
