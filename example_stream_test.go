package hedge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// A client calls Header before the first RecvMsg, as Bigtable's does, and the server sends headers
// at once. Without WithWaitForMessage the stuck primary's headers would decide the stream.
func ExampleWithWaitForMessage() {
	cluster := must(testserver.Start(testserver.Config{Script: func(a testserver.Attempt) testserver.Plan {
		if a.Number == 0 && a.ID > 1 {
			return testserver.Plan{HeaderAtOnce: true, Delay: time.Minute}
		}
		return testserver.Plan{HeaderAtOnce: true}
	}}))
	defer cluster.Close()

	s, err := hedge.New(
		hedge.WithReadOnlyMethods("/hedgetest.TestService/*"),
		hedge.WithWarmup(20, 10*time.Millisecond), // the example is too short to learn a delay
		hedge.WithWaitForMessage("/hedgetest.TestService/Server*"),
	)
	if err != nil {
		panic(err)
	}
	conn := must(cluster.Client(interceptor.DialOptions(s)...))
	client := testpb.NewTestServiceClient(conn)
	if _, err := client.Unary(context.Background(), &testpb.Request{Id: 1}, hedge.Off()); err != nil { // connects
		panic(err)
	}

	rows := must(client.ServerStream(context.Background(), &testpb.Request{Id: 2, Messages: 1}))
	if _, err := rows.Header(); err != nil { // waits for the first row
		panic(err)
	}
	row, err := rows.Recv()
	if err != nil {
		panic(err)
	}
	fmt.Println("row", row.Sequence, "of attempt", row.Attempt)
	// Output: row 0 of attempt 1
}
