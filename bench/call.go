package main

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

// call makes the call with the given id and returns how long its caller waited for an answer, and which attempt
// gave it. It checks what it got: the error is a wrongReply if the call did not fail but brought something else than
// was asked for.
type call func(ctx context.Context, client testpb.TestServiceClient, id uint64) (took time.Duration, attempt uint32, err error)

type wrongReply struct{ error }

// replyBytes is the size of the payload that calls ask for, by which a reply of two attempts' parts shows.
const replyBytes = 64

func unary(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
	return unaryOf(ctx, client.Unary, id)
}

// ofTwoMethods calls one method with the even ids and another with the odd ones.
func ofTwoMethods(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
	if id%2 == 0 {
		return unaryOf(ctx, client.Unary, id)
	}
	return unaryOf(ctx, client.UnaryIdempotent, id)
}

func unaryOf(ctx context.Context, method func(context.Context, *testpb.Request, ...grpc.CallOption) (*testpb.Reply, error), id uint64) (time.Duration, uint32, error) {
	req := &testpb.Request{Id: id, ReplyBytes: replyBytes}
	start := time.Now()
	reply, err := method(ctx, req)
	took := time.Since(start)
	if err != nil {
		return took, 0, err
	}
	if err := testserver.Check(req, 0, reply); err != nil {
		return took, 0, wrongReply{err}
	}
	return took, reply.GetAttempt(), nil
}

// tokensPerStream is how many messages a token stream has.
const tokensPerStream = 4

// tokens reads a stream and returns how long its caller waited for the first message. The stream is right if
// all messages came, in order and from one attempt.
func tokens(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &testpb.Request{Id: id, Messages: tokensPerStream, ReplyBytes: replyBytes}
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
			return took, attempt, wrongReply{err}
		}
		if reply.GetAttempt() != attempt {
			return took, attempt, wrongReply{fmt.Errorf("stream %d: message %d is of attempt %d, those before of %d", id, received, reply.GetAttempt(), attempt)}
		}
		received++
	}
	switch {
	case !errors.Is(err, io.EOF):
		return took, attempt, err
	case received != tokensPerStream:
		return took, attempt, wrongReply{fmt.Errorf("stream %d: %d messages, want %d", id, received, tokensPerStream)}
	}
	return took, attempt, nil
}
