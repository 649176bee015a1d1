package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// call makes the call with the given id. It returns how long the caller waited for an answer, and
// the number of the attempt that answered. It checks the reply: the error is a WrongReply if the
// call succeeded with another reply than it asked for.
type call func(ctx context.Context, client testpb.TestServiceClient, id uint64) (took time.Duration,
	attempt uint32, err error)

// WrongReply is the error of a call that succeeded with another reply than it asked for.
type WrongReply struct{ Err error }

func (w WrongReply) Error() string { return w.Err.Error() }

// replyBytes is the size of the payload that calls ask for. A reply mixed from two attempts does
// not pass its check.
const replyBytes = 64

func unary(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
	return unaryOf(ctx, client.Unary, id)
}

// ofTwoMethods calls one method with even ids and another with odd ids.
func ofTwoMethods(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
	if id%2 == 0 {
		return unaryOf(ctx, client.Unary, id)
	}
	return unaryOf(ctx, client.UnaryIdempotent, id)
}

func unaryOf(ctx context.Context, method func(context.Context, *testpb.Request,
	...grpc.CallOption) (*testpb.Reply, error), id uint64) (time.Duration, uint32, error) {
	req := &testpb.Request{Id: id, ReplyBytes: replyBytes}
	start := time.Now()
	reply, err := method(ctx, req)
	took := time.Since(start)
	if err != nil {
		return took, 0, err
	}
	if err := testserver.Check(req, 0, reply); err != nil {
		return took, 0, WrongReply{err}
	}
	return took, reply.GetAttempt(), nil
}

// TokensPerStream is how many messages a token stream has.
const TokensPerStream = 4

// tokens reads a stream and returns how long the caller waited for the first message. It checks
// that all messages arrive, in order and from one attempt.
func tokens(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &testpb.Request{Id: id, Messages: TokensPerStream, ReplyBytes: replyBytes}
	start := time.Now()
	st, err := client.ServerStream(ctx, req)
	if err != nil {
		return time.Since(start), 0, err
	}
	reply, err := st.Recv()
	took := time.Since(start)

	received, attempt := uint32(0), reply.GetAttempt()
	for ; err == nil; reply, err = st.Recv() {
		if err := testserver.Check(req, received, reply); err != nil {
			return took, attempt, WrongReply{err}
		}
		if reply.GetAttempt() != attempt {
			return took, attempt, WrongReply{
				fmt.Errorf("stream %d: message %d is of attempt %d, those before of %d", id, received,
					reply.GetAttempt(), attempt)}
		}
		received++
	}
	switch {
	case !errors.Is(err, io.EOF):
		return took, attempt, err
	case received != TokensPerStream:
		return took, attempt, WrongReply{fmt.Errorf("stream %d: %d messages, want %d", id, received, TokensPerStream)}
	}
	return took, attempt, nil
}

// CallID is the id of the request of call n, which counts from 0.
func CallID(n int) uint64 { return uint64(n) + 1 }
