// Package stream hedges server-streaming gRPC calls by the time to their first message. If none has
// arrived after the learned delay, a second stream is opened. The stream that delivers first wins,
// and the other is reset on the wire at once. Messages, header, trailer and status all come from
// the winner.
package stream

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
)

// Interceptor returns a client interceptor that hedges server-streaming calls as s decides, or none
// if s is nil.
//
// The first call of RecvMsg or Header starts the race. After RecvMsg, attempts race for the first
// message or the end of the stream; after Header, for the response headers or the end of a stream
// without headers ([hedge.WithWaitForMessage] changes this). A hedge to another destination always
// needs its first message, because a server may send headers before a refusal. A hedge is sent only while RecvMsg or
// Header waits. After the race every call goes straight to the winner, at no cost per message. A
// stream that stalls later is not hedged, because the caller already has some of its messages.
//
// The methods of a stream may be called concurrently as [grpc.ClientStream] allows. If Header is
// called while RecvMsg waits, it returns the primary's headers as soon as they arrive, and the
// primary wins. If a hedge has already won, Header returns the headers of that hedge. If the
// primary's first message was rejected (see [hedge.WithAcceptable]), Header waits for the decision.
//
// A Context obtained before the decision ends with the stream, or at the primary's deadline. It has
// the values of the winner, for example the peer, or of the primary until there is a winner.
//
// For a method with a hedgingPolicy (see [hedge.WithServiceConfig]), attempts always race for the
// response headers, as gRPC defines. If headers come at once, the stream is never hedged.
//
// interceptor.Unary lists the requests and messages that can be hedged. Client-streaming calls, and
// bidirectional ones without [hedge.WithSingleRequest], are not hedged, and count in
// stats.Counts.PassedThrough.
//
// Interceptors chained after this one run once for each attempt, concurrently.
//
// Hedges go over the connections of hedgeTo in turn, if there are any: see interceptor.HedgeTo.
func Interceptor(s *hedge.Scheduler, hedgeTo ...grpc.ClientConnInterface) grpc.StreamClientInterceptor {
	r, channels := (*registry.Registry)(s), call.ChannelsOf(hedgeTo)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		within := race.Of(ctx)
		if within != nil && call.IsAttempt(within, r, method, cc) {
			return streamer(ctx, desc, cc, method, opts...)
		}
		ctx = race.Unnumbered(ctx, within)
		target, conn := call.ConnOf(cc)
		if !desc.ServerStreams || desc.ClientStreams && !call.IsSingleRequest(r, target, method) {
			c := call.PassThrough(r, ctx, target, method, conn, opts...)
			o := opener{desc: desc, cc: cc, method: method, streamer: streamer, registry: r}
			return o.open(&race.Context{Context: ctx}, &c.Leg, opts)
		}
		c := call.Begin(r, ctx, target, method, conn, opts...)
		if desc.ClientStreams {
			c.SendsOne()
		}
		waits := c.WaitsForMessage(func() bool {
			return attempt.CodecOf(opts) == nil && described(method) != nil
		})
		var options attempt.Options
		if c.Hedged || c.WouldBeHedged {
			if options = attempt.NewOptions(slices.Clone(opts)); options.Unknown {
				c.UnknownOption()
			}
		}
		o := opener{desc: desc, cc: cc, method: method, streamer: streamer, options: options, registry: r}
		if !c.Hedged {
			return openUnhedged(ctx, &c, waits, o, opts)
		}
		st := &clientStream{}
		st.waits = waits
		if desc.ClientStreams {
			st.single, st.bidi, st.unsent = &singleRequest{}, true, true
		}
		st.primary.stream = st
		if channels != nil {
			c.GoElsewhere(channels.Of, true)
		}
		st.call, st.inspects = c, c.Inspects()
		st.primary.leg = &st.call.Leg
		st.opener = o
		if err := st.open(); err != nil {
			return nil, err
		}
		return st, nil
	}
}

// openUnhedged opens a stream that is not hedged. If needed, its latency is learned and its
// failures count.
func openUnhedged(ctx context.Context, c *call.Call, waits bool, o opener, opts []grpc.CallOption,
) (_ grpc.ClientStream, err error) {
	if !c.Learns && !c.TracksFailures {
		return o.open(&race.Context{Context: ctx}, &c.Leg, opts)
	}
	st := &clientStream{phase: settled, unhedged: true, dryRun: c.WouldBeHedged}
	st.waits, st.bidi, st.unsent = waits, o.desc.ClientStreams, o.desc.ClientStreams
	st.call, st.inspects = *c, c.Inspects()
	st.primary.leg = &st.call.Leg
	st.ctx.Context = ctx
	st.primary.cancel, st.opener.options = func(error) {}, o.options
	if st.primary.ClientStream, err = o.open(&st.ctx, st.primary.leg, opts); err != nil {
		st.call.End(call.Completion{Err: err})
		return nil, err
	}
	st.chosen.Store(&st.primary)
	return st, nil
}
