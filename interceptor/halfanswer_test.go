package interceptor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// halfAnswer connects to a server whose primaries send the message of a reply, and fail 50 ms after they began. Its hedges
// end with the given code after 10 ms.
func halfAnswer(t *testing.T, s *hedge.Scheduler, hedged codes.Code) *grpc.ClientConn {
	return testserver.HandlerT(t, func(_ any, st grpc.ServerStream) error {
		if err := st.RecvMsg(&testpb.Request{}); err != nil {
			return err
		}
		if hedge.PreviousAttempts(st.Context()) > 0 {
			time.Sleep(10 * ms)
			return status.Error(hedged, "hedge")
		}
		if err := st.SendMsg(&testpb.Reply{Id: 7, Payload: []byte("half")}); err != nil {
			return err
		}
		time.Sleep(50 * ms)
		return status.Error(codes.Unavailable, "primary")
	}, grpc.WithUnaryInterceptor(interceptor.Unary(s)))
}

// In TestRule01_AFailureWithAMessage the primary's server sends a message before it fails. If the primary is the outcome, the
// caller gets what it gets from plain gRPC. If the failure of a hedge is, the caller's reply stays as it was.
func TestRule01_AFailureWithAMessage(t *testing.T) {
	half := &testpb.Reply{Id: 7, Payload: []byte("half")}
	for _, tc := range []struct {
		name   string
		delay  time.Duration // 0: plain gRPC
		hedged codes.Code
		code   codes.Code
		half   bool // the reply is the message
	}{
		{"plain", 0, codes.OK, codes.Unavailable, true},
		{"no hedge was due", time.Hour, codes.OK, codes.Unavailable, true},
		{"both fail", 10 * ms, codes.Unavailable, codes.Unavailable, true},
		{"the hedge answers while the primary is in flight", 10 * ms, codes.NotFound, codes.NotFound, false},
		{"the hedge answers when the primary has failed", 45 * ms, codes.NotFound, codes.NotFound, false},
	} {
		for _, was := range []*testpb.Reply{{}, {Id: 1, Payload: []byte("held")}} {
			t.Run(tc.name+", "+string(was.Payload), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var s *hedge.Scheduler
					if tc.delay > 0 {
						s = hedgetest.Fixed(t, tc.delay, hedge.WithReadOnlyMethods("/a/B"), hedge.WithMaxHedges(1))
					}
					conn := halfAnswer(t, s, tc.hedged)
					reply, want := proto.CloneOf(was), was
					if tc.half {
						want = half
					}
					err := conn.Invoke(t.Context(), "/a/B", &testpb.Request{}, reply)
					if status.Code(err) != tc.code || !proto.Equal(reply, want) {
						t.Errorf("%v, and the reply is %v, want %v and %v", err, reply, tc.code, want)
					}
				})
			})
		}
	}
}

// In TestReplies_OfACallThatFailsStay the caller holds on to a part of its reply. A hedge that answers NOT_FOUND leaves that part
// where it is if no attempt has changed the reply.
func TestReplies_OfACallThatFailsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &stub{steps: []step{{after: time.Second}, {after: 5 * ms, code: codes.NotFound}}}
		reply := &testpb.Reply{Payload: []byte("held")}
		held := &reply.Payload[0]
		s := hedgetest.Fixed(t, 10*ms, hedge.WithReadOnlyMethods("/test.Service/Method"))
		if err := st.call(t.Context(), s, reply); status.Code(err) != codes.NotFound || &reply.Payload[0] != held {
			t.Errorf("%v, and the reply is another one: %v", err, reply)
		}
	})
}
