package workload

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestTokensChecked checks that an incomplete stream is reported as wrong and a failed one as
// failed.
func TestTokensChecked(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plan  testserver.Plan
		wrong bool
		err   string
	}{
		{"whole", testserver.Plan{}, false, ""},
		{"short", testserver.Plan{Messages: 3}, true, "stream 1: 3 messages, want 4"},
		{"long", testserver.Plan{Messages: 5}, true, "stream 1: 5 messages, want 4"},
		{"empty", testserver.Plan{Empty: true}, true, "stream 1: 0 messages, want 4"},
		{"other payload", testserver.Plan{PayloadBytes: 9}, true, "payload of 9 bytes"},
		{"failed", testserver.Plan{After: 2, Code: codes.DataLoss}, false, "DataLoss"},
	} {
		cluster := testserver.StartT(t,
			testserver.Config{Script: func(testserver.Attempt) testserver.Plan { return tc.plan }})
		_, _, err := tokens(t.Context(), testpb.NewTestServiceClient(cluster.ClientT(t)), 1)
		if got := errors.As(err, new(WrongReply)); got != tc.wrong || (err == nil) != (tc.err == "") ||
			err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, a wrong reply: %v; want %q, %v", tc.name, err, got, tc.err, tc.wrong)
		}
	}
}

// TestTokensOfTwoAttempts checks that a stream is wrong if its messages come from two attempts,
// each message being right.
func TestTokensOfTwoAttempts(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{})
	conn, err := cluster.Client(
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
			method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			primary, err := streamer(ctx, desc, cc, method, opts...)
			if err != nil {
				return nil, err
			}
			hedge, err := streamer(metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", "1"), desc,
				cc, method, opts...)
			return &mixedStream{ClientStream: primary, hedge: hedge}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = tokens(t.Context(), testpb.NewTestServiceClient(conn), 1)
	if want := "stream 1: message 2 is of attempt 1, those before of 0"; !errors.As(err, new(WrongReply)) ||
		err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// mixedStream is one attempt up to its second message and another from then on.
type mixedStream struct {
	grpc.ClientStream
	hedge    grpc.ClientStream
	received int
}

func (s *mixedStream) SendMsg(m any) error {
	return errors.Join(s.ClientStream.SendMsg(m), s.hedge.SendMsg(m))
}

func (s *mixedStream) CloseSend() error {
	return errors.Join(s.ClientStream.CloseSend(), s.hedge.CloseSend())
}

func (s *mixedStream) RecvMsg(m any) error {
	s.received++
	err := s.hedge.RecvMsg(m)
	if s.received <= 2 {
		err = s.ClientStream.RecvMsg(m)
	}
	return err
}
