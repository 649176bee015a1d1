package stream_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// nothing is a stream that always has a message and does nothing else.
type nothing struct{ ctx context.Context }

func (nothing) Header() (metadata.MD, error) { return nil, nil }
func (nothing) Trailer() metadata.MD         { return nil }
func (nothing) CloseSend() error             { return nil }
func (n nothing) Context() context.Context   { return n.ctx }
func (nothing) SendMsg(any) error            { return nil }
func (nothing) RecvMsg(any) error            { return nil }

var streamDesc = &grpc.StreamDesc{StreamName: "ServerStream", ServerStreams: true}

// openNothing opens one through the interceptor, as gRPC opens one: with a context of its own.
func openNothing(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	own, cancel := context.WithCancel(ctx)
	n := nothing{own}
	for _, opt := range opts {
		if finish, ok := opt.(grpc.OnFinishCallOption); ok {
			finish.OnFinish(nil)
		}
	}
	cancel()
	return n, nil
}

// TestCost_Allocations compares a stream that needs no hedge with a plain one: opening it, its first message, and a
// message after that.
func TestCost_Allocations(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///bench", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := stream.Interceptor(hedgetest.Fixed(t, time.Hour))
	ctx := t.Context()
	req, reply := &testpb.Request{}, &testpb.Reply{}
	first := func(st grpc.ClientStream, err error) grpc.ClientStream {
		if err == nil {
			err = st.SendMsg(req)
		}
		if err == nil {
			err = st.CloseSend()
		}
		if err == nil {
			err = st.RecvMsg(reply)
		}
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	more := func(do func(grpc.ClientStream, error) grpc.ClientStream) float64 {
		plain := testing.AllocsPerRun(1000, func() { do(openNothing(ctx, streamDesc, conn, "/a/B")) })
		return testing.AllocsPerRun(1000, func() { do(open(ctx, streamDesc, conn, "/a/B", openNothing)) }) - plain
	}
	opened := more(func(st grpc.ClientStream, err error) grpc.ClientStream {
		if err != nil {
			t.Fatal(err)
		}
		return st
	})
	t.Logf("allocations more than plain: %v to open a stream, %v with its first message, which needs a timer", opened, more(first))
	if opened > 8 {
		t.Errorf("opening costs %v allocations more than plain, want at most 8", opened)
	}
	st := first(open(ctx, streamDesc, conn, "/a/B", openNothing))
	if n := testing.AllocsPerRun(1000, func() { _ = st.RecvMsg(reply) }); n != 0 {
		t.Errorf("%v allocations for each message after the first", n)
	}
}
