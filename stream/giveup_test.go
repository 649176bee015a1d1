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
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
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
	for _, hedged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Script: func(testserver.Attempt) testserver.Plan {
				return testserver.Plan{Ending: testserver.Hang}
			}})
			s := hedgetest.Fixed(t, 10*ms, hedge.WithAllMethods(), hedge.WithMaxHedges(1))
			inner := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				st, err := streamer(ctx, desc, cc, method, opts...)
				if err != nil {
					return nil, err
				}
				return watchdog{st}, nil
			}
			chain := []grpc.StreamClientInterceptor{inner}
			if hedged {
				chain = []grpc.StreamClientInterceptor{stream.Interceptor(s), inner}
			}
			conn := cluster.ClientT(t, grpc.WithChainStreamInterceptor(chain...))
			testserver.ConnectT(t, conn)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			st, err := testpb.NewTestServiceClient(conn).ServerStream(ctx, &testpb.Request{Id: 1, Messages: 1})
			if err != nil {
				t.Fatal(err)
			}
			_, err = st.Recv()
			took := time.Since(began)
			if status.Code(err) != codes.Unavailable || took > time.Second {
				t.Errorf("hedged=%v: %v after %v", hedged, err, took)
			}
			cancel()
			synctest.Wait()
		})
	}
}
