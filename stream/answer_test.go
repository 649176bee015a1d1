package stream_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// small is the size of the payload in messages that are good.
const small = 100

// goodIfLarge accepts first messages with a payload, and no stream without messages.
func goodIfLarge(_ context.Context, _ string, reply any, err error) bool {
	r, ok := reply.(*testpb.Reply)
	return ok && len(r.Payload) >= small || err != nil && err != io.EOF
}

// TestRule02_TheCallEndsWithARejectedMessageAtHand ends a connection, a server or a caller's
// context while the race waits for a better message. The caller gets the one at hand, then an
// error, and the stream is over.
func TestRule02_TheCallEndsWithARejectedMessageAtHand(t *testing.T) {
	for name, end := range map[string]func(conn *grpc.ClientConn, cluster *testserver.Cluster, cancel func()){
		"the connection is closed": func(conn *grpc.ClientConn, _ *testserver.Cluster, _ func()) { _ = conn.Close() },
		"the server stops":         func(_ *grpc.ClientConn, cluster *testserver.Cluster, _ func()) { cluster.Close() },
		"the caller gives up":      func(_ *grpc.ClientConn, _ *testserver.Cluster, cancel func()) { cancel() },
		"the deadline passes":      nil,
	} {
		for winner := range 2 {
			hedgetest.Run(t, fmt.Sprintf("%s,attempt=%d", name, winner), func(t *testing.T) {
				hangs := testserver.Plan{Ending: testserver.Hang}
				plans := []testserver.Plan{hangs, hangs, hangs}
				plans[winner] = testserver.Plan{Delay: 2 * ms, Messages: 5, After: 1, Ending: testserver.Hang}
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(plans...)})
				conn := cluster.ClientT(t, hedging(hedgetest.Fixed(t, 10*ms, hedge.WithAcceptable(goodIfLarge),
					hedge.WithGuard(false))))
				testserver.ConnectT(t, conn)
				ctx, cancel := context.WithCancel(t.Context())
				if end == nil {
					ctx, cancel = context.WithTimeout(ctx, 100*ms)
				}
				defer cancel()
				var outcome stats.Outcome
				var finished atomic.Int64
				st, err := testpb.NewTestServiceClient(conn).ServerStream(ctx, &testpb.Request{Id: 1}, hedge.Report(&outcome),
					grpc.OnFinish(func(error) { finished.Add(1) }))
				if err != nil {
					t.Fatal(err)
				}
				streamContext, began := st.Context(), time.Now()
				if end != nil {
					time.AfterFunc(100*ms, func() { end(conn, cluster, cancel) })
				}
				m, err := st.Recv()
				if err != nil || int(m.Attempt) != winner || time.Since(began) != 100*ms || outcome.Winner != winner ||
					!outcome.Rejected {
					t.Errorf("got %v, %v after %v: %+v", m, err, time.Since(began), outcome)
				}
				if _, err := st.Recv(); err == nil {
					t.Error("a message after the end")
				}
				synctest.Wait()
				if streamContext.Err() == nil || finished.Load() != 1 {
					t.Errorf("the context ended with %v, and OnFinish ran %d times", streamContext.Err(), finished.Load())
				}
				time.Sleep(time.Minute) // until losers have ended
			})
		}
	}
}
