package stream

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/rpc"
)

type opener struct {
	desc     *grpc.StreamDesc
	cc       *grpc.ClientConn
	method   string
	streamer grpc.Streamer
	options  attempt.CallOptions
	registry *registry.Registry
}

// open opens an attempt under ctx.
func (o *opener) open(ctx *race.Context, leg *call.Leg, opts []grpc.CallOption) (grpc.ClientStream, error) {
	leg.SetUp(ctx, o.registry, o.method)
	defer ctx.Made.Store(true)
	if to := leg.Channel; to != nil {
		return to.NewStream(ctx, o.desc, o.method, opts...)
	}
	return o.streamer(ctx, o.desc, o.cc, o.method, opts...)
}

// streamAttempt is one attempt of a stream, with its result of the race. Before the decision only
// the attempt's goroutine may use its fields. Afterwards only the RecvMsg or Header that ran the
// contest, and later calls of RecvMsg, may use the winner's fields, and no goroutine a loser's. The
// stream's lock guards ClientStream of the primary: see choose.
//
// The primary is the [race.Entrant].
type streamAttempt struct {
	grpc.ClientStream
	stream  *clientStream
	results *attempt.Results
	// cancel frees the attempt's context. It must be called when the stream has ended for its
	// caller. The end of gRPC's stream is too early, because a retry interceptor below this one may
	// open another stream with the same context, unless the connection is closed.
	cancel context.CancelCauseFunc

	header    metadata.MD
	headerErr error // of Header, if headers are the goal
	into      any   // receives the first message; nil while the caller's message is not known
	recvErr   error // of RecvMsg for the first message, before the decision
	held      bool  // into holds the first message
	answered  bool  // a hedge has its goal; guarded by the stream's lock
	n         uint8 // the number of the attempt
}

func (m *streamAttempt) leg() *call.Leg {
	return m.stream.call.LegOf(int(m.n))
}

func (m *streamAttempt) open(ctx *race.Context, extra ...grpc.CallOption) (err error) {
	o := &m.stream.opener
	if c := o.options.Codec; c != nil {
		extra = append(extra, c.Option())
	}
	var opts []grpc.CallOption
	opts, m.results = o.options.Attempt(extra...)
	m.ClientStream, err = o.open(ctx, m.leg(), opts)
	return err
}

func (m *streamAttempt) Replayable() bool { return m.stream.kept.Load() != nil }

func (m *streamAttempt) Hedge(n int, ctx *race.Context) race.Attempt {
	c := m.stream
	h := &streamHedge{request: c.kept.Load().Message()}
	if h.request == nil {
		return nil
	}
	h.streamAttempt = streamAttempt{stream: c, n: uint8(n), cancel: ctx.Cancel, into: c.contest.replies.Make()}
	return h
}

// Primary waits for the goal of the race, of the primary or, within Run, of a hedge. The callers of
// most streams wait in it, so it must not be a wrapper: the garbage collector unwinds the stack of
// each.
func (m *streamAttempt) Primary() race.End {
	if m.stream.call.AnswersLater {
		m.header, m.headerErr = m.Header()
		if m.headerErr != nil || m.header != nil && m.leg().Target == m.stream.call.Target {
			return m.end(m.headerErr)
		}
		// The stream ended without headers. Only RecvMsg returns its status. RecvMsg may also return a
		// message, if a retry interceptor below this one has opened another stream. Headers from another
		// destination may come before its refusal, which ends no call: see rule 2 in docs/rules.md.
	}
	if m.recvErr == nil {
		if m.into == nil {
			m.into = m.stream.opener.message()
		}
		m.recvErr = m.RecvMsg(m.into)
		m.held = m.recvErr == nil
	}
	return m.end(failureOf(m.recvErr))
}

// message returns a message for RecvMsg while the caller's message is not known: of the method's
// response type, or for any type.
func (o *opener) message() any {
	if o.options.Codec != nil {
		return new(attempt.Bytes)
	}
	if m := described(o.method); m != nil {
		return m
	}
	return new(emptypb.Empty) // keeps unknown fields
}

// described returns an empty message of a method's response type, by the descriptors linked into
// the program; nil if the method is not among them.
func described(method string) any {
	m := rpc.Descriptor(method)
	if m == nil {
		return nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil
	}
	return t.New().Interface()
}

// failureOf converts the error of RecvMsg to the error of the attempt. The end of the stream is a
// success.
func failureOf(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// end returns the end of the attempt.
func (m *streamAttempt) end(err error) race.End {
	end := race.End{Err: err, Open: err == nil && m.recvErr == nil}
	if m.recvErr == nil {
		end.Reply = m.into
	}
	if err != nil && err != rpc.ErrLost { // otherwise gRPC's stream goes on, and may be receiving the trailer
		end.Trailer = m.Trailer()
	}
	return end
}

// served reports whether a server sent the status err with which the stream has failed.
func (m *streamAttempt) served(err error) bool {
	var header metadata.MD
	attempt.Safely(func() { header, _ = m.Header() })
	return rpc.Served(m.cc(), header, m.Trailer(), err)
}

// Trailer returns nil if the stream is an interceptor's own whose Trailer panics.
func (m *streamAttempt) Trailer() (md metadata.MD) {
	attempt.Safely(func() { md = m.ClientStream.Trailer() })
	return md
}

// cc returns the connection of the attempt; nil for a channel that is not gRPC's own.
func (m *streamAttempt) cc() *grpc.ClientConn {
	if to := m.leg().Channel; to != nil {
		return to.CC
	}
	return m.stream.opener.cc
}

// receive is RecvMsg of the winner.
func (m *streamAttempt) receive(into any) error {
	switch {
	case m.recvErr != nil:
		return m.recvErr
	case m.held:
		held := m.into
		m.into, m.held = nil, false
		return m.stream.opener.options.Codec.Decode(held, into)
	}
	return m.RecvMsg(into)
}

// failedStream stands for a stream that could not be opened. RecvMsg returns the error, as it does
// for a stream that fails right after it was opened.
type failedStream struct {
	ctx context.Context
	err error
}

func (f failedStream) Header() (metadata.MD, error) { return nil, nil }
func (f failedStream) Trailer() metadata.MD         { return nil }
func (f failedStream) CloseSend() error             { return nil }
func (f failedStream) Context() context.Context     { return f.ctx }
func (f failedStream) SendMsg(any) error            { return nil }
func (f failedStream) RecvMsg(any) error            { return f.err }

// unmarked is the stream of a hedge. If the hedge wins, the caller gets its Context, without the
// marks of a hedge, which a stats handler may have copied into it.
type unmarked struct {
	grpc.ClientStream
	context func() context.Context
}

func (u unmarked) Context() context.Context { return u.context() }

// streamHedge is a [race.Attempt].
type streamHedge struct {
	streamAttempt
	request any // until it is sent
}

// Run opens the hedge, sends the request and waits for the goal of the race.
func (h *streamHedge) Run(ctx *race.Context) race.End {
	m := &h.streamAttempt
	c := m.stream
	err := m.open(ctx, grpc.OnFinish(func(err error) { c.freeIfClosed(m, err) }))
	st := m.ClientStream
	m.ClientStream = unmarked{st, sync.OnceValue(func() context.Context {
		ctx := st.Context()
		return race.Unmarked(ctx, race.Of(ctx))
	})}
	if err != nil {
		m.ClientStream = failedStream{ctx, err}
	} else if err = m.SendMsg(h.request); err == nil || err == io.EOF { // EOF: RecvMsg returns the status
		err = c.noteSent(m)
	}
	h.request = nil // the stream may stay open for long
	if err != nil {
		m.recvErr = err
		return m.end(err)
	}
	end := m.Primary()
	if end.Err != nil {
		end.Served = m.served(end.Err)
	} else if err = c.noteAnswer(m); err != nil {
		return m.end(err)
	} else {
		ctx.Answered()
	}
	return end
}

// singleRequest is the state of a stream of a bidirectional method: its messages and hedges.
type singleRequest struct {
	hedges []*streamAttempt // that have sent the request, until the caller closes its side
	closed bool             // no more messages follow
	second bool             // the caller sends a second message: no hedge without an answer may win
}

// noteSent notes that a hedge has sent the request, and closes its side if the caller has. It
// returns an error if the hedge must not win.
func (c *clientStream) noteSent(h *streamAttempt) error {
	if c.single == nil {
		return h.CloseSend()
	}
	c.Lock()
	closed, second := c.single.closed, c.single.second
	if !closed {
		c.single.hedges = append(c.single.hedges, h)
	}
	c.Unlock()
	switch {
	case second:
		return rpc.ErrLost
	case closed:
		return h.CloseSend()
	}
	return nil
}

// noteAnswer notes that a hedge has an answer. Like noteSent, it returns an error if the hedge must
// not win.
func (c *clientStream) noteAnswer(h *streamAttempt) error {
	if c.single == nil {
		return nil
	}
	c.Lock()
	defer c.Unlock()
	if c.single.second {
		return rpc.ErrLost
	}
	h.answered = true
	return nil
}

// dropHedges cancels the hedges without an answer if the caller sends a second message and the
// primary cannot win.
func (c *clientStream) dropHedges() {
	if c.single == nil {
		return
	}
	c.Lock()
	var losers []*streamAttempt
	for _, h := range c.single.hedges { // a closed side sends no second message
		if c.single.second && !h.answered {
			losers = append(losers, h)
		}
	}
	c.Unlock()
	for _, h := range losers {
		h.cancel(rpc.ErrLost)
	}
}
