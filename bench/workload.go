package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// workload is a kind of call and how long an attempt of it takes.
type workload struct {
	name string
	law  string // as testserver.ParseLaw reads it
	call call
	turn int // calls that each caller makes before another policy has its turn: well under 2 s, what a budget remembers
	// plan is what the server does in an attempt for which that time was drawn; nil: it answers after it.
	plan func(delay time.Duration) testserver.Plan
}

var workloads = []workload{
	{name: "straggler", law: "straggler", call: unary, turn: 25},
	{name: "ttft", law: "ttft", call: tokens, turn: 10, plan: func(delay time.Duration) testserver.Plan {
		return testserver.Plan{Delay: delay, HeaderAtOnce: true, Interval: time.Millisecond}
	}},
}

func workloadNamed(name string) workload {
	for _, w := range workloads {
		if w.name == name {
			return w
		}
	}
	panic("no workload " + name)
}

// call makes the call with the given id and returns how long its caller waited for an answer. It checks what
// it got: the error is a wrongReply if the call did not fail but brought something else than was asked for.
type call func(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, error)

type wrongReply struct{ error }

// replyBytes is the size of the payload that calls ask for, by which a reply of two attempts' parts shows.
const replyBytes = 64

func unary(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, error) {
	req := &testpb.Request{Id: id, ReplyBytes: replyBytes}
	start := time.Now()
	reply, err := client.Unary(ctx, req)
	took := time.Since(start)
	if err != nil {
		return took, err
	}
	if err := testserver.Check(req, 0, reply); err != nil {
		return took, wrongReply{err}
	}
	return took, nil
}

// tokensPerStream is how many messages a token stream has.
const tokensPerStream = 4

// tokens reads a stream and returns how long its caller waited for the first message. The stream is right if
// all messages came, in order and from one attempt.
func tokens(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &testpb.Request{Id: id, Messages: tokensPerStream, ReplyBytes: replyBytes}
	start := time.Now()
	st, err := client.ServerStream(ctx, req)
	if err != nil {
		return time.Since(start), err
	}
	reply, err := st.Recv()
	took := time.Since(start)

	received, attempt := uint32(0), reply.GetAttempt()
	for ; err == nil; reply, err = st.Recv() {
		if err := testserver.Check(req, received, reply); err != nil {
			return took, wrongReply{err}
		}
		if reply.GetAttempt() != attempt {
			return took, wrongReply{fmt.Errorf("stream %d: message %d is of attempt %d, those before of %d", id, received, reply.GetAttempt(), attempt)}
		}
		received++
	}
	switch {
	case !errors.Is(err, io.EOF):
		return took, err
	case received != tokensPerStream:
		return took, wrongReply{fmt.Errorf("stream %d: %d messages, want %d", id, received, tokensPerStream)}
	}
	return took, nil
}
