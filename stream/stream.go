// Package stream hedges server-streaming gRPC calls on the time to their first message.
//
// Add [Interceptor] to a client, beside interceptor.Unary and with the same scheduler:
//
//	s, err := hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*"))
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
//		grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
//
// If no first message has arrived after the learned delay, a second stream is opened. The one that delivers first wins, and
// all further messages come from it. The other one is reset on the wire at once. All that the caller sees comes from one
// attempt: messages, header, trailer and status.
package stream

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/wire"
)

// Interceptor returns a client interceptor that hedges server-streaming calls as s decides. With a nil s it hedges
// none.
//
// The first call of RecvMsg or Header starts the race. If it is RecvMsg, attempts race for the first message, or the end of
// the stream. If it is Header, they race for the response headers, or the end of a stream without headers; [WaitForMessage]
// changes this. A hedge is sent only while RecvMsg or Header waits. After the race every call goes straight to the winner,
// at no cost per message. A stream that stalls later is not hedged, because the caller already has some of its messages.
//
// The methods of a stream may be called concurrently as [grpc.ClientStream] allows. If Header is called while RecvMsg waits,
// it returns the primary's headers as soon as they are there, and the primary wins. If a hedge has won before, Header
// returns the headers of that hedge. If the primary's first message was a poor answer before (see [hedge.WithAnswer]), Header
// waits until the race is decided. A Context obtained before the end of the race ends with the stream. Its values, such as
// the peer, are those of the winner, and of the primary until there is a winner.
//
// For a method with a hedgingPolicy, see [hedge.WithServiceConfig], attempts always race for the response headers, as gRPC
// defines it. If headers come at once, such a stream is never hedged.
//
// The conditions for requests and messages are those of interceptor.Unary.
//
// Client-streaming and bidirectional calls are not hedged; they are counted in Stats.PassedThrough.
//
// Interceptors chained after this one run once for each attempt, concurrently.
func Interceptor(s *hedge.Scheduler, opts ...Option) grpc.StreamClientInterceptor {
	e, o := engine.Of(s), newOptions(opts)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		var target string
		var conn engine.Conn // a nil interface if cc is nil, as when a test passes its own streamer
		if cc != nil {
			target, conn = cc.Target(), cc
		}
		ctx = wire.Unnumbered(ctx)
		if desc.ClientStreams || !desc.ServerStreams {
			e.PassThrough(target, method, opts...)
			return streamer(ctx, desc, cc, method, opts...)
		}
		call := e.Begin(ctx, target, method, conn, opts...)
		plan, hedged := call.Plan()
		if !hedged {
			return watch(ctx, call, o.types(method), desc, cc, method, streamer, opts)
		}
		c := &clientStream{
			call: call, caller: ctx, plan: plan, types: o.types(method),
			desc: desc, cc: cc, method: method, streamer: streamer,
			tracksFailures: call.TracksFailures(), committed: plan.LastFailureWins, inspects: call.Inspects(),
			options: attempt.NewOptions(opts),
		}
		if err := c.open(target, opts); err != nil {
			return nil, err
		}
		return c, nil
	}
}

// watch opens a stream that is not hedged, and learns from it.
func watch(ctx context.Context, call engine.Call, types *messageTypes, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	st, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		call.End(engine.End{Err: err})
		return nil, err
	}
	if !call.Learns() && !call.TracksFailures() {
		return st, nil
	}
	c := &clientStream{call: call, caller: ctx, types: types, method: method, tracksFailures: call.TracksFailures(), inspects: call.Inspects()}
	c.primary.ClientStream = st
	c.chosen.Store(&c.primary)
	return c, nil
}

// open opens the primary. An error ends the call.
func (c *clientStream) open(target string, opts []grpc.CallOption) error {
	var ctx context.Context
	var cancel context.CancelCauseFunc
	if c.plan.Detached {
		ctx, cancel, c.plan.LetGo = race.Loosen(c.caller)
	} else {
		ctx, cancel = context.WithCancelCause(c.caller)
	}
	c.cancel, c.bound = cancel, ctx
	ctx = c.call.PrimaryContext(ctx, target)
	c.callOptions = opts
	c.primary, opts = c.newAttempt(cancel, true)
	err := c.primary.open(ctx, c, opts)
	switch {
	case err == nil:
	case c.committed && c.call.Failure(0, err, race.Seen{}).End == race.NonFatal && c.caller.Err() == nil:
		// With a hedgingPolicy a hedge may still succeed, so the error comes from RecvMsg. AfterFunc frees the call if the
		// caller never calls RecvMsg.
		c.primary.ClientStream, c.primary.ended = failedStream{ctx, err}, err
		context.AfterFunc(ctx, c.choosePrimaryIfNoRace)
	default:
		cancel(nil)
		c.call.End(engine.End{Err: err})
		c.primary.results.Deliver()
		return err
	}
	c.mu.Lock()
	c.opened = true
	c.mu.Unlock()
	if c.caller.Err() != nil || c.closed() { // if attemptFinished ran before opened was set, it did nothing
		c.choosePrimaryIfNoRace()
	}
	return nil
}

// closed reports whether the connection has been closed.
func (c *clientStream) closed() bool {
	return c.cc != nil && c.cc.GetState() == connectivity.Shutdown
}

// attemptFinished is the OnFinish of an attempt: gRPC's stream has ended with err. cancel frees the attempt's context.
func (c *clientStream) attemptFinished(primary bool, cancel context.CancelCauseFunc, err error) {
	if c.closed() {
		cancel(err)
		if ctx := c.context.Load(); ctx != nil {
			ctx.cancel(err)
		}
	}
	switch {
	case !primary:
	case err != nil && c.call.MayRepeat(err): // RecvMsg may repeat the call; if it is never called, the call ends with its context
		context.AfterFunc(c.bound, c.choosePrimaryIfNoRace)
	default:
		c.choosePrimaryIfNoRace() // the stream ended while no call was waiting, so no race is needed
	}
}
