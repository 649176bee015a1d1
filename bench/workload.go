package main

import (
	"context"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// workload is a kind of call and how long an attempt of it takes.
type workload struct {
	name string
	law  string // as testserver.ParseLaw reads it
	call call
}

var workloads = []workload{
	{name: "straggler", law: "straggler", call: unary},
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
