package stream_test

import (
	"testing"
	"testing/synctest"
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

// halfMessage connects to a server whose primaries send, after 20 ms, a message that ends in the middle. A client decodes the
// first half of it, and then fails. Hedges end with NOT_FOUND after 20 ms.
func halfMessage(t *testing.T, s *hedge.Scheduler) *grpc.ClientConn {
	return testserver.HandlerT(t, func(_ any, st grpc.ServerStream) error {
		if err := st.RecvMsg(&testpb.Request{}); err != nil {
			return err
		}
		time.Sleep(20 * ms)
		if hedge.PreviousAttempts(st.Context()) > 0 {
			return status.Error(codes.NotFound, "hedge")
		}
		half := &emptypb.Empty{}
		half.ProtoReflect().SetUnknown([]byte{1 << 3, 7, 2<<3 | 2, 100}) // field 1 is 7; field 2 has 100 bytes, which do not follow
		return st.SendMsg(half)
	}, hedging(s))
}

// In TestRule01_HalfAMessage the primary fails in the middle of its first message. If the primary is the outcome, the caller's
// message is as plain gRPC leaves it. If a hedge is, the message stays as it was.
func TestRule01_HalfAMessage(t *testing.T) {
	for _, tc := range []struct {
		name  string
		delay time.Duration // 0: plain gRPC
		code  codes.Code
		want  uint64
	}{
		{"plain", 0, codes.Internal, 7},
		{"no hedge was due", time.Hour, codes.Internal, 7},
		{"the hedge is the outcome", 10 * ms, codes.NotFound, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *hedge.Scheduler
				if tc.delay > 0 {
					s = hedgetest.Fixed(t, tc.delay, hedge.WithReadOnlyMethods("/a/B"), hedge.WithMaxHedges(1))
				}
				st, err := halfMessage(t, s).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/a/B")
				if err == nil {
					err = st.SendMsg(&testpb.Request{})
				}
				if err == nil {
					err = st.CloseSend()
				}
				if err != nil {
					t.Fatal(err)
				}
				reply := &testpb.Reply{Id: 1}
				err = st.RecvMsg(reply)
				if status.Code(err) != tc.code || !proto.Equal(reply, &testpb.Reply{Id: tc.want}) {
					t.Errorf("%v, and the message is %v, want %v and id:%d", err, reply, tc.code, tc.want)
				}
			})
		})
	}
}
