package testserver_test

import (
	"context"
	"fmt"
	"log"
	"time"

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
