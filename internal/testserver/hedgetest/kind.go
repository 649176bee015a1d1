package hedgetest

import (
	"context"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"

	testpb "github.com/grpchedge/hedge/proto"
)

// A Kind makes a call of the test service, and returns its first reply.
type Kind func(ctx context.Context, c testpb.TestServiceClient, r *testpb.Request, opts ...grpc.CallOption,
) (*testpb.Reply, error)

// Kinds are the kinds of calls by name.
var Kinds = map[string]Kind{"unary": Unary, "stream": Stream}

// Unary makes a unary call.
func Unary(ctx context.Context, c testpb.TestServiceClient, r *testpb.Request, opts ...grpc.CallOption,
) (*testpb.Reply, error) {
	return c.Unary(ctx, r, opts...)
}

// Stream makes a server stream of the messages that the request asks for, at least one, and reads it
// to its end.
func Stream(ctx context.Context, c testpb.TestServiceClient, r *testpb.Request, opts ...grpc.CallOption,
) (first *testpb.Reply, err error) {
	r.Messages = max(r.Messages, 1)
	st, err := c.ServerStream(ctx, r, opts...)
	for n := uint32(0); err == nil; n++ {
		var reply *testpb.Reply
		if reply, err = st.Recv(); n == 0 {
			first = reply
		}
		if err == io.EOF && n == r.Messages {
			return first, nil
		}
	}
	if err == io.EOF {
		err = fmt.Errorf("the stream has fewer messages than %d", r.Messages)
	}
	return first, err
}

// EachKind runs a test with each kind of call, in virtual time.
func EachKind(t *testing.T, test func(t *testing.T, k Kind)) {
	t.Helper()
	for name, k := range Kinds {
		Run(t, name, func(t *testing.T) { test(t, k) })
	}
}
