package interceptor_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// halfAnswer connects to a server. Its primaries send a message, and fail 50 ms after they began.
// If half is set they send a truncated message after 20 ms: a client decodes its first half and
// then fails. Its hedges end with the code hedged after 10 ms.
func halfAnswer(t *testing.T, s *hedge.Scheduler, half bool, hedged codes.Code) *grpc.ClientConn {
	return testserver.HandlerT(t, func(_ any, st grpc.ServerStream) error {
		if err := st.RecvMsg(&testpb.Request{}); err != nil {
			return err
		}
		if hedge.PreviousAttempts(st.Context()) > 0 {
			time.Sleep(10 * ms)
			return status.Error(hedged, "hedge")
		}
		if half {
			time.Sleep(20 * ms)
			m := &emptypb.Empty{}
			// field 1 is 7; field 2 has 100 bytes, which do not follow
			m.ProtoReflect().SetUnknown([]byte{1 << 3, 7, 2<<3 | 2, 100})
			return st.SendMsg(m)
		}
		if err := st.SendMsg(&testpb.Reply{Id: 7, Payload: []byte("half")}); err != nil {
			return err
		}
		time.Sleep(50 * ms)
		return status.Error(codes.Unavailable, "primary")
	}, hedgetest.Interceptors(s)...)
}

// In TestRule01_AFailureWithAMessage the primary receives a message, or half of one, before it
// fails. If the primary is the outcome, the caller's message is as plain gRPC leaves it. If the
// failure of a hedge is, it stays as it was.
func TestRule01_AFailureWithAMessage(t *testing.T) {
	for _, tc := range []struct {
		name    string
		delay   time.Duration // 0: plain gRPC
		half    bool
		hedged  codes.Code
		code    codes.Code
		primary bool // is the outcome
	}{
		{"plain", 0, false, codes.OK, codes.Unavailable, true},
		{"no hedge was due", time.Hour, false, codes.OK, codes.Unavailable, true},
		{"both fail", 10 * ms, false, codes.Unavailable, codes.Unavailable, true},
		{"the hedge answers while the primary is in flight", 10 * ms, false, codes.NotFound, codes.NotFound, false},
		{"plain, half a message", 0, true, codes.OK, codes.Internal, true},
		{"half a message, and no hedge was due", time.Hour, true, codes.OK, codes.Internal, true},
		{"half a message, and the hedge answers", 15 * ms, true, codes.NotFound, codes.NotFound, false},
	} {
		for _, was := range []*testpb.Reply{{}, {Id: 1, Payload: []byte("held")}} {
			for _, d := range []door{unary, streaming} {
				if d == streaming && !tc.half {
					continue // its first message would be its answer
				}
				hedgetest.Run(t, tc.name+", "+string(was.Payload)+", "+string(d), func(t *testing.T) {
					s := hedgetest.FixedOrPlain(t, tc.delay, hedge.WithReadOnlyMethods("/a/B"), hedge.WithMaxHedges(1))
					reply, want := proto.CloneOf(was), was
					if tc.primary && tc.half {
						want = &testpb.Reply{Id: 7}
					} else if tc.primary {
						want = &testpb.Reply{Id: 7, Payload: []byte("half")}
					}
					err := invokeBy(t.Context(), d, halfAnswer(t, s, tc.half, tc.hedged), reply)
					if status.Code(err) != tc.code || !proto.Equal(reply, want) {
						t.Errorf("%v, and the reply is %v, want %v and %v", err, reply, tc.code, want)
					}
				})
			}
		}
	}
}

// invokeBy makes a call and receives into reply.
func invokeBy(ctx context.Context, d door, conn *grpc.ClientConn, reply any) error {
	if d == unary {
		return conn.Invoke(ctx, "/a/B", &testpb.Request{}, reply)
	}
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/a/B")
	if err == nil {
		err = st.SendMsg(&testpb.Request{})
	}
	if err == nil {
		err = st.RecvMsg(reply)
	}
	return err
}
