package stream_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

const ms = time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hedging hedges the streams of a connection as s says; a nil s leaves plain gRPC.
func hedging(s *hedge.Scheduler) grpc.DialOption {
	if s == nil {
		return grpc.EmptyDialOption{}
	}
	return grpc.WithStreamInterceptor(stream.Interceptor(s))
}

// dial returns a client of the cluster's that hedges as s says, and is connected.
func dial(t testing.TB, cluster *testserver.Cluster, s *hedge.Scheduler,
	options ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	conn := cluster.ClientT(t, append([]grpc.DialOption{hedging(s)}, options...)...)
	testserver.ConnectT(t, conn)
	return testpb.NewTestServiceClient(conn)
}

// inside is a stream interceptor inside hedging.
func inside(do func(cc *grpc.ClientConn, open opener) (grpc.ClientStream, error)) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
		method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return do(cc, func(first ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(ctx, desc, cc, method, append(first, opts...)...)
		})
	})
}

// opener opens an attempt.
type opener = func(...grpc.CallOption) (grpc.ClientStream, error)

// open opens a stream.
func open(ctx context.Context, t *testing.T, client testpb.TestServiceClient, req *testpb.Request,
	opts ...grpc.CallOption) grpc.ServerStreamingClient[testpb.Reply] {
	t.Helper()
	st, err := client.ServerStream(ctx, req, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// wired starts a cluster in memory, with a plan for each attempt by its number, and returns a connection
// to it that hedges as s decides.
func wired(t *testing.T, s *hedge.Scheduler, plans ...testserver.Plan) (*testserver.Cluster, *grpc.ClientConn) {
	t.Helper()
	cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(plans...)})
	conn := cluster.ClientT(t, hedging(s))
	testserver.ConnectT(t, conn)
	return cluster, conn
}

// inMemory is wired with a client in place of the connection.
func inMemory(t *testing.T, s *hedge.Scheduler, plans ...testserver.Plan) (*testserver.Cluster,
	testpb.TestServiceClient) {
	t.Helper()
	cluster, conn := wired(t, s, plans...)
	return cluster, testpb.NewTestServiceClient(conn)
}

// request opens a stream of the connection and sends its request.
func request(t *testing.T, conn *grpc.ClientConn, opts ...grpc.CallOption) grpc.ClientStream {
	t.Helper()
	st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method, opts...)
	if err == nil {
		err = st.SendMsg(&testpb.Request{Id: 7, Messages: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// receive reads a stream to its end and checks each message: right, in order, all from one attempt.
// It returns how many there were and which attempt they are from, -1 if there were none.
func receive(st grpc.ServerStreamingClient[testpb.Reply], req *testpb.Request) (messages, attempt int, err error) {
	attempt = -1
	for {
		reply, err := st.Recv()
		if err == io.EOF {
			return messages, attempt, nil
		}
		if err != nil {
			return messages, attempt, err
		}
		if err := testserver.Check(req, uint32(messages), reply); err != nil {
			return messages, attempt, err
		}
		if attempt >= 0 && int(reply.Attempt) != attempt {
			return messages, attempt, errors.New("messages of two attempts in one stream")
		}
		attempt = int(reply.Attempt)
		messages++
	}
}

// policy lets all methods have three attempts, 10 ms apart, and takes UNAVAILABLE for non-fatal.
var policy = hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 3,
	"hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}`)

func slow() testserver.Plan                        { return testserver.Plan{Delay: time.Hour} }
func delivers(after time.Duration) testserver.Plan { return testserver.Plan{Delay: after} }
func breaks(after time.Duration, code codes.Code, pushback ...string) testserver.Plan {
	return testserver.Plan{Delay: after, Code: code, Trailer: metadata.MD{"grpc-retry-pushback-ms": pushback}}
}
