package interceptor_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stream"
)

// door is a way to make a call: a unary one, or a stream that has its answer as its only message.
type door string

const (
	unary        door = "unary"
	streaming    door = "stream"
	headersFirst door = "stream, headers first" // the caller asks for them
)

var doors = []door{unary, streaming, headersFirst}

// eachDoor runs a test in virtual time for each door.
func eachDoor(t *testing.T, name string, test func(t *testing.T, d door)) {
	t.Helper()
	for _, d := range doors {
		hedgetest.Run(t, name+", "+string(d), func(t *testing.T) { test(t, d) })
	}
}

// callBy makes one call of the stub by a door.
func (s *stub) callBy(d door, ctx context.Context, scheduler *hedge.Scheduler, reply any,
	opts ...grpc.CallOption) error {
	if d == unary {
		return s.call(ctx, scheduler, reply, opts...)
	}
	method, request := s.what()
	st, err := stream.Interceptor(scheduler)(ctx, &grpc.StreamDesc{ServerStreams: true}, nil, method, s.open, opts...)
	if err == nil {
		err = st.SendMsg(request)
	}
	if err == nil && d == headersFirst {
		_, err = st.Header()
	}
	if err == nil {
		err = st.RecvMsg(reply)
	}
	if err == nil {
		err = st.RecvMsg(new(wrapperspb.Int64Value))
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// stubStream is an attempt of the stub as a stream. Headers and message come at once, and then the
// end.
type stubStream struct {
	grpc.ClientStream
	stub  *stub
	opts  []grpc.CallOption
	step  step
	timer *time.Timer
	over  chan struct{} // the time of the attempt has come
	once  sync.Once
	heard bool

	stubAttempt
}

func (s *stub) open(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	st := s.begin(ctx, opts)
	if st.step.closed {
		return nil, st.RecvMsg(nil)
	}
	return st, nil
}

func (s *stub) begin(ctx context.Context, opts []grpc.CallOption) *stubStream {
	a := stubAttempt{ctx: ctx, number: simulation.AttemptOf(ctx), began: time.Now()}
	st := &stubStream{stub: s, opts: opts, step: s.steps[a.number], over: make(chan struct{}), stubAttempt: a}
	st.timer = time.AfterFunc(st.step.after, func() { close(st.over) })
	if !st.step.deaf {
		context.AfterFunc(ctx, func() { st.end(status.FromContextError(ctx.Err()).Err(), nil) })
	}
	return st
}

// end ends the stream, once, as gRPC does: the variables are written before the OnFinish callbacks.
func (st *stubStream) end(err error, md metadata.MD) {
	st.once.Do(func() {
		st.timer.Stop()
		st.ended = time.Now()
		st.stub.mu.Lock()
		st.stub.attempts = append(st.stub.attempts, st.stubAttempt)
		st.stub.mu.Unlock()
		for _, opt := range st.opts {
			switch opt := opt.(type) {
			case grpc.HeaderCallOption:
				*opt.HeaderAddr = md
			case grpc.TrailerCallOption:
				*opt.TrailerAddr = st.step.trailer(md)
			}
		}
		for _, opt := range st.opts {
			if finish, ok := opt.(grpc.OnFinishCallOption); ok && !st.stub.foreign {
				finish.OnFinish(err)
			}
		}
	})
}

func (st *stubStream) wait() (metadata.MD, error) {
	done := st.ctx.Done()
	if st.step.deaf {
		done = nil
	}
	select {
	case <-st.over:
	case <-done:
	}
	select {
	case <-st.over: // even if the context has ended too
		if st.step.panics != nil || st.step.exits {
			st.end(nil, st.md())
		}
		_ = st.step.end(st.number)
		return st.md(), nil
	default:
		return nil, status.FromContextError(st.ctx.Err()).Err()
	}
}

func (st *stubStream) Header() (metadata.MD, error) {
	md, err := st.wait()
	if err != nil || st.step.code != codes.OK { // a failure has no headers
		return nil, err
	}
	return md, nil
}

func (st *stubStream) RecvMsg(m any) error {
	md, err := st.wait()
	switch {
	case err != nil:
		return err
	case st.step.code != codes.OK:
		err = st.step.end(st.number)
		st.end(err, md)
		return err
	case st.heard && st.ctx.Err() != nil:
		return status.FromContextError(st.ctx.Err()).Err()
	case st.heard:
		st.end(nil, md)
		return io.EOF
	}
	st.heard = true
	m.(*wrapperspb.Int64Value).Value = int64(st.number)
	return nil
}

func (st *stubStream) Trailer() metadata.MD { return st.step.trailer(st.md()) }
func (st *stubStream) SendMsg(any) error    { return nil }
func (st *stubStream) CloseSend() error     { return nil }
func (st *stubStream) Context() context.Context {
	if st.stub.foreign {
		return st.ctx
	}
	return peer.NewContext(st.ctx, &peer.Peer{})
}
