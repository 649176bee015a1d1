// Package stream hedges server-streaming gRPC calls on the time to their first message.
//
// Add [Interceptor] to a client, beside interceptor.Unary and with the same scheduler:
//
//	s, err := hedge.New(hedge.WithIdempotentOnly())
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
//		grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
//
// A stream that has sent no first message by its learned delay gets a second one. Whichever delivers first is
// the stream from then on, message for message; the other is reset on the wire at once. All that the caller
// sees, messages, header, trailer and status, comes from one attempt.
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
// Attempts race until the caller has what it first waits for. For RecvMsg that is the first message, or the end, of
// the stream; for Header it is the response headers, unless [WaitForMessage] names the method, or the end of a stream
// without headers. A hedge is sent only while the caller waits so. From then on every call goes straight to the
// attempt that won, at no cost per message; a stream that stalls later is not hedged, as its messages so far cannot
// be taken back.
//
// The methods of a stream may be called concurrently as [grpc.ClientStream] allows. Where Header is called while
// RecvMsg waits, it returns the primary's headers as soon as they are there, and the stream is the primary from then
// on; if a hedge has won before, it returns the headers of that. A Context that is asked for before an attempt has won
// ends with the stream, and has the values, the peer among them, of the attempt that wins: until then, of the primary.
//
// A method with a hedgingPolicy, see [hedge.WithServiceConfig], is committed by response headers whatever its caller
// waits for, as gRPC defines it; where headers come at once, nothing of it is hedged.
//
// Which messages can be hedged is the same as for interceptor.Unary. A hedge copies the request when it is due, which is
// after the generated method has returned: the request must not change before the first RecvMsg or Header has returned.
// gRPC asks for that of any message that was given to SendMsg. A caller who fills the same request for the next stream
// meanwhile may get the answer to that one.
//
// Client-streaming and bidirectional calls pass through and are counted.
//
// Interceptors chained after this one run once for each attempt, concurrently.
func Interceptor(s *hedge.Scheduler, opts ...Option) grpc.StreamClientInterceptor {
	e, o := engine.Of(s), newOptions(opts)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		var target string
		var conn engine.Conn // a nil interface where cc is nil, as with a binding that brings its own streamer
		if cc != nil {
			target, conn = cc.Target(), cc
		}
		ctx = wire.Unnumbered(ctx)
		if desc.ClientStreams || !desc.ServerStreams {
			e.PassThrough(target, method)
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
			heeds: call.Heeds(), committed: plan.LastFailureWins,
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
		call.Unraced(err, nil)
		return nil, err
	}
	if !call.Learns() && !call.Heeds() {
		return st, nil
	}
	c := &clientStream{call: call, caller: ctx, types: types, method: method, heeds: call.Heeds()}
	c.primary.ClientStream = st
	c.chosen.Store(&c.primary)
	return c, nil
}

// open opens the primary. An error ends the call.
func (c *clientStream) open(target string, opts []grpc.CallOption) error {
	ctx, cancel := context.WithCancelCause(c.caller)
	c.cancel = cancel
	ctx = c.call.PrimaryContext(ctx, target)
	c.callOptions = opts
	c.primary, opts = c.newMember(cancel, true)
	err := c.primary.open(ctx, c, opts)
	switch {
	case err == nil:
	case c.committed && c.call.Failure(0, err, nil).End == race.NonFatal && c.caller.Err() == nil:
		// A hedge may do better, and the caller hears of it from RecvMsg. It may never call that.
		c.primary.ClientStream, c.primary.ended = failed{ctx, err}, err
		context.AfterFunc(ctx, c.abandon)
	default:
		cancel(nil)
		c.call.Unraced(err, nil)
		c.primary.results.Deliver()
		return err
	}
	c.mu.Lock()
	c.opened = true
	c.mu.Unlock()
	if c.caller.Err() != nil || c.closed() { // meanwhile, so that finished was not to be told
		c.abandon()
	}
	return nil
}

// closed reports whether the connection has been closed.
func (c *clientStream) closed() bool {
	return c.cc != nil && c.cc.GetState() == connectivity.Shutdown
}

// finished is told that gRPC's stream of an attempt has ended with err. cancel frees the attempt's context.
func (c *clientStream) finished(primary bool, cancel context.CancelCauseFunc, err error) {
	if c.closed() {
		cancel(err)
		if ctx := c.context.Load(); ctx != nil {
			ctx.cancel(err)
		}
	}
	if primary {
		c.abandon() // what ends while nobody waits for it, no race is to decide
	}
}
