package stream_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// endless is a stream that always has a message and has no other effect.
type endless struct{ ctx context.Context }

func (endless) Header() (metadata.MD, error) { return nil, nil }
func (endless) Trailer() metadata.MD         { return nil }
func (endless) CloseSend() error             { return nil }
func (n endless) Context() context.Context   { return n.ctx }
func (endless) SendMsg(any) error            { return nil }
func (endless) RecvMsg(any) error            { return nil }

var streamDesc = &grpc.StreamDesc{StreamName: "ServerStream", ServerStreams: true}

// openEndless opens one through the interceptor, as gRPC opens one: with a context of its own.
func openEndless(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	own, cancel := context.WithCancel(ctx)
	n := endless{own}
	for _, opt := range opts {
		if finish, ok := opt.(grpc.OnFinishCallOption); ok {
			finish.OnFinish(nil)
		}
	}
	cancel()
	return n, nil
}

// TestCost_Allocations compares a stream that needs no hedge with a plain one: opening it, and a
// message after the first.
func TestCost_Allocations(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///bench", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hedged := stream.Interceptor(hedgetest.Fixed(t, time.Hour))
	open := func() grpc.ClientStream {
		st, err := hedged(t.Context(), streamDesc, conn, "/a/B", openEndless)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	plain := testing.AllocsPerRun(1000, func() { _, _ = openEndless(t.Context(), streamDesc, conn, "/a/B") })
	if opened := testing.AllocsPerRun(1000, func() { open() }) - plain; opened > 8 {
		t.Errorf("opening costs %v allocations more than plain, want at most 8", opened)
	}
	st, reply := open(), &testpb.Reply{}
	if err := errors.Join(st.SendMsg(&testpb.Request{}), st.CloseSend(), st.RecvMsg(reply)); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { _ = st.RecvMsg(reply) }); n != 0 {
		t.Errorf("%v allocations for each message after the first", n)
	}
	if size := reflect.TypeOf(st).Elem().Size(); size > 632 {
		t.Errorf("a stream has %d bytes, want 632 at most: the allocator's class of 640, less a header", size)
	}
}
