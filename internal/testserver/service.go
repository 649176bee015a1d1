package testserver

import (
	"context"
	"errors"
	"io"
	"math"

	"google.golang.org/grpc"

	testpb "github.com/grpchedge/hedge/proto"
)

// service is the test service as one backend offers it.
type service struct {
	testpb.UnimplementedTestServiceServer
	backend *backend
}

func (s *service) Unary(ctx context.Context, req *testpb.Request) (*testpb.Reply, error) {
	return s.unary(ctx, testpb.TestService_Unary_FullMethodName, req)
}

func (s *service) UnaryNoSideEffects(ctx context.Context, req *testpb.Request) (*testpb.Reply, error) {
	return s.unary(ctx, testpb.TestService_UnaryNoSideEffects_FullMethodName, req)
}

func (s *service) UnaryIdempotent(ctx context.Context, req *testpb.Request) (*testpb.Reply, error) {
	return s.unary(ctx, testpb.TestService_UnaryIdempotent_FullMethodName, req)
}

func (s *service) unary(ctx context.Context, method string, req *testpb.Request) (reply *testpb.Reply, err error) {
	h := begin(ctx, s.backend, method)
	defer func() { h.end(err) }()
	plan := h.plan(req)
	plan.After = 0
	err = h.play(&plan, 1, func(int) error {
		reply = h.reply(&plan, req, 0)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func (s *service) ServerStream(req *testpb.Request, stream grpc.ServerStreamingServer[testpb.Reply]) error {
	h := handlerOf(stream.Context())
	plan := h.plan(req)
	return h.play(&plan, plan.messages(req), func(seq int) error {
		return stream.Send(h.reply(&plan, req, seq))
	})
}

func (s *service) ServerStreamIdempotent(req *testpb.Request, stream grpc.ServerStreamingServer[testpb.Reply]) error {
	return s.ServerStream(req, stream)
}

// ClientStream reads to the end of the requests, and answers then. The first
// request decides the plan.
func (s *service) ClientStream(stream grpc.ClientStreamingServer[testpb.Request, testpb.Reply]) error {
	h := handlerOf(stream.Context())
	var first *testpb.Request
	received := 0
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if first == nil {
			first = req
		}
		received++
	}
	plan := h.plan(first)
	plan.After = 0
	return h.play(&plan, 1, func(int) error {
		return stream.SendAndClose(h.reply(&plan, first, received))
	})
}

// BidiStream answers each request as it comes. The first one decides the plan.
func (s *service) BidiStream(stream grpc.BidiStreamingServer[testpb.Request, testpb.Reply]) error {
	h := handlerOf(stream.Context())
	req, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	plan := h.plan(req)
	err = h.play(&plan, math.MaxInt, func(seq int) error {
		if seq > 0 {
			if req, err = stream.Recv(); err != nil {
				return err
			}
		}
		return stream.Send(h.reply(&plan, req, seq))
	})
	if errors.Is(err, io.EOF) { // the client sent its last request
		return nil
	}
	return err
}

// track wraps every stream, from before its first request is read: a stream without a request
// counts too.
func (s *service) track(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	next grpc.StreamHandler) (err error) {
	h := begin(stream.Context(), s.backend, info.FullMethod)
	defer func() { h.end(err) }()
	return next(srv, trackedStream{stream, context.WithValue(stream.Context(), handlerKey{}, h)})
}

type trackedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s trackedStream) Context() context.Context { return s.ctx }

type handlerKey struct{}

func handlerOf(ctx context.Context) *handler { return ctx.Value(handlerKey{}).(*handler) }
