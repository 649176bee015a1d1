package hedge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/grpchedge/hedge"
	testpb "github.com/grpchedge/hedge/proto"
)

// A client calls Header before the first RecvMsg, as Bigtable's does, and the server sends headers
// at once. Without WithWaitForMessage the stuck primary's headers would decide the stream.
func ExampleWithWaitForMessage() {
	s := must(hedge.New(
		hedge.WithReadOnlyMethods("/hedgetest.TestService/*"),
		hedge.WithWarmup(20, 10*time.Millisecond), // the example is too short to learn a delay
		hedge.WithWaitForMessage("/hedgetest.TestService/Server*"),
	))
	client, stop := slowPrimary(s)
	defer stop()

	rows := must(client.ServerStream(context.Background(), &testpb.Request{Id: 2, Messages: 1}))
	if _, err := rows.Header(); err != nil { // waits for the first row
		panic(err)
	}
	row := must(rows.Recv())
	fmt.Println("row", row.Sequence, "of attempt", row.Attempt)
	// Output: row 0 of attempt 1
}
