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
// needs its first message, because a server may send headers before a refusal. A hedge is sent only
// while RecvMsg or Header waits. After the race every call goes straight to the winner, at no cost
// per message. A stream that stalls later is not hedged, because the caller already has some of its
// messages.
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
		ctx, again := call.Enter(ctx, r, method, cc)
		if again {
			return streamer(ctx, desc, cc, method, opts...)
		}
		o := opener{desc: desc, cc: cc, method: method, streamer: streamer, registry: r}
		st, bare := o.begin(ctx, channels, opts)
		if st == nil {
			defer bare.Made.Store(true)
			return streamer(bare, desc, cc, method, opts...)
		}
		if err := st.open(opts); err != nil {
			return nil, err
		}
		return st, nil
	}
}

// begin begins the call of a stream, and returns the stream. If the call is not hedged and teaches
// nothing, begin returns only the context of its attempt. It is apart from the interceptor to keep
// the stack small on which gRPC opens the stream.
func (o *opener) begin(ctx context.Context, channels *call.Channels, opts []grpc.CallOption,
) (*clientStream, *race.Context) {
	r, desc := o.registry, o.desc
	target, conn := call.ConnOf(o.cc)
	if !desc.ServerStreams || desc.ClientStreams && !call.IsSingleRequest(r, target, o.method) {
		c := call.PassThrough(r, ctx, target, o.method, conn, opts...)
		return nil, o.only(ctx, &c)
	}
	c := call.Begin(r, ctx, target, o.method, conn, opts...)
	if desc.ClientStreams {
		c.ExpectSingleRequest()
	}
	waits := c.WaitsForMessage(func() bool {
		return attempt.CodecOf(opts) == nil && described(o.method) != nil
	})
	if c.Hedged || c.WouldBeHedged {
		if o.options = attempt.NewOptions(slices.Clone(opts)); o.options.Unknown {
			c.UnknownOption()
		}
	}
	if !c.Hedged && !c.Learns && !c.TracksFailures {
		return nil, o.only(ctx, &c)
	}
	st := &clientStream{call: c, opener: *o, inspects: c.Inspects(), unhedged: !c.Hedged, dryRun: c.WouldBeHedged}
	st.ForRequest, st.ForMessage = desc.ClientStreams, waits
	st.call.SetWait(&st.Wait)
	if st.unhedged {
		st.phase = settled
		return st, nil
	}
	if desc.ClientStreams {
		st.single = &singleRequest{}
	}
	if st.primary.stream = st; channels != nil {
		st.call.GoElsewhere(channels.Of, true)
	}
	return st, nil
}

// only returns the context of the only attempt of a call.
func (o *opener) only(ctx context.Context, c *call.Call) *race.Context {
	bare := &race.Context{Context: ctx}
	c.Leg.SetUp(bare, o.registry, o.method)
	return bare
}
