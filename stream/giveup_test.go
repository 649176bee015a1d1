package stream_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// watchdog is a stream of an inner interceptor that gives up on a receive after some time, without ending the stream's context.
type watchdog struct{ grpc.ClientStream }

func (w watchdog) RecvMsg(m any) error {
	got := make(chan error, 1)
	go func() { got <- w.ClientStream.RecvMsg(new(testpb.Reply)) }()
	select {
	case err := <-got:
		return err
	case <-time.After(50 * ms):
		return status.Error(codes.Unavailable, "watchdog: no message for 50 ms")
	}
}

// TestStream_AnInnerInterceptorGivesUp shows that such a stream fails at once, as without hedging.
func TestStream_AnInnerInterceptorGivesUp(t *testing.T) {
	eachWay(t, testserver.Config{Backends: 3, Script: func(testserver.Attempt) testserver.Plan { return testserver.Plan{Ending: testserver.Hang} }},
		func(t *testing.T, _ bool, s *hedge.Scheduler, cluster *testserver.Cluster, _ testpb.TestServiceClient) {
			client := dial(t, cluster, s, grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				st, err := streamer(ctx, desc, cc, method, opts...)
				return watchdog{st}, err
			}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			st, err := client.ServerStream(ctx, &testpb.Request{Id: 1, Messages: 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = st.Recv(); status.Code(err) != codes.Unavailable || time.Since(began) > time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			cancel()
			synctest.Wait()
		})
}
