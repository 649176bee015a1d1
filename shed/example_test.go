package shed_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
)

// A server without room for hedges turns them away; their calls go on.
func Example() {
	bound, err := shed.New(shed.WithBusy(func() bool { return true })) // a pool of connections, say, that is full
	if err != nil {
		panic(err)
	}
	cluster, err := testserver.Start(testserver.Config{
		ServerOptions: []grpc.ServerOption{
			grpc.ChainUnaryInterceptor(bound.Unary),
			grpc.ChainStreamInterceptor(bound.Stream),
		},
		Script: func(a testserver.Attempt) testserver.Plan {
			return testserver.Plan{Delay: time.Duration(a.ID) * 50 * time.Millisecond}
		},
	})
	if err != nil {
		panic(err)
	}
	defer cluster.Close()

	s, err := hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*"))
	if err != nil {
		panic(err)
	}
	conn, err := cluster.Client(grpc.WithChainUnaryInterceptor(interceptor.Unary(s)))
	if err != nil {
		panic(err)
	}
	client := testpb.NewTestServiceClient(conn)
	if _, err := client.Unary(context.Background(), &testpb.Request{}, hedge.Off()); err != nil { // connects
		panic(err)
	}
	reply, err := client.Unary(context.Background(), &testpb.Request{Id: 1}, hedge.After(5*time.Millisecond))
	if err != nil {
		panic(err)
	}
	fmt.Println("answered by attempt", reply.Attempt)
	fmt.Println("hedges shed:", bound.Shed(), "turned away:", s.Stats().TurnedAway)
	// Output:
	// answered by attempt 0
	// hedges shed: 1 turned away: 1
}

// The handler of an HTTP server. This one turns every hedge away.
func ExampleBound_Handler() {
	bound, err := shed.New(shed.WithMaxHedges(0))
	if err != nil {
		panic(err)
	}
	handler := bound.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served") }))

	hedge := httptest.NewRequest("GET", "/", nil)
	hedge.Header.Set("Hedge-Attempt", "1")
	hedge.Header.Set("Hedge-Primary-In-Flight", "1")
	for _, req := range []*http.Request{httptest.NewRequest("GET", "/", nil), hedge} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		fmt.Println(answer.Code)
	}
	// Output:
	// 200
	// 429
}
