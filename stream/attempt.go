package stream

import (
	"cmp"
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/race"
)

// streamAttempt is one attempt of a stream, and what it received before the race was decided. Until then only the attempt's
// goroutine may use it. Afterwards only RecvMsg may use its fields.
type streamAttempt struct {
	grpc.ClientStream
	results *attempt.Results
	cancel  context.CancelCauseFunc // frees its context; nil if the context is the caller's

	header metadata.MD
	err    error // of the receive or Header that the race was for
	into   any   // where the first message is received, if that is not the caller's message
	held   bool  // into holds a message that RecvMsg has to return
	ended  error // the stream ended without a message, and RecvMsg has to return this error; nil otherwise
}

// newAttempt returns an attempt whose stream is not yet open, and the options to open it with. cancel must be called when
// the stream has ended for its caller. The end of gRPC's stream is too early, because a retry interceptor below this one may
// open another stream with the same context. When the connection is closed, it cannot: see attemptFinished.
func (c *clientStream) newAttempt(cancel context.CancelCauseFunc, primary bool) (m streamAttempt, opts []grpc.CallOption) {
	opts, m.results = c.options.Attempt(grpc.OnFinish(func(err error) { c.attemptFinished(primary, cancel, err) }))
	m.cancel = cancel
	return m, opts
}

func (m *streamAttempt) open(ctx context.Context, c *clientStream, opts []grpc.CallOption) error {
	st, err := c.streamer(ctx, c.desc, c.cc, c.method, opts...)
	m.ClientStream = st
	return err
}

// awaitGoal waits for the goal of the race and returns the attempt's outcome.
func (m *streamAttempt) awaitGoal(c *clientStream, into any) error {
	if c.goal == firstMessage {
		if m.err = m.ended; m.err == nil {
			m.err = m.RecvMsg(into)
		}
		return outcome(m.err)
	}
	m.header, m.err = m.Header()
	if m.header != nil || m.err != nil {
		return m.err
	}
	// The stream ended without headers. Only RecvMsg returns how it ended. RecvMsg may also return a message, if a retry
	// interceptor below this one has opened another stream.
	if m.ended == nil {
		m.into = c.types.empty(c.method, c.callOptions)
		m.ended = m.RecvMsg(m.into)
		m.held = m.ended == nil
	}
	return outcome(m.ended)
}

// keepForRecv keeps the first message, or the end of the stream, for the next RecvMsg.
func (m *streamAttempt) keepForRecv() { m.held, m.ended = m.err == nil, m.err }

// answered reports whether the first message, or the end of the stream, has been received already.
func (m *streamAttempt) answered() bool { return m.held || m.ended != nil }

// outcome converts the error of a receive to the error of the attempt. The end of the stream is a success.
func outcome(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// entrant implements [race.Entrant] for a clientStream.
type entrant clientStream

func (e *entrant) Primary() error { return e.primary.awaitGoal((*clientStream)(e), e.into) }

func (e *entrant) Seen() race.Seen { return e.primary.Seen() }

// Seen is what is known of an attempt that has failed. If it lost its connection, its stream has ended, so Header does not wait.
func (m *streamAttempt) Seen() race.Seen {
	s := race.Seen{Header: m.header, Trailer: m.Trailer()}
	s.Peer, _ = peer.FromContext(m.Context())
	if s.Header == nil && resets.ConnectionEnded(cmp.Or(m.err, m.ended)) {
		s.Header, _ = m.Header()
	}
	return s
}

// Replayable returns shared only for a detached race, whose losers must then not run on. Otherwise the request itself waits
// for the hedges that read the caller's message.
func (e *entrant) Replayable() (ok, shared bool) {
	return e.request.replayable(), e.plan.Detached && e.request.isShared()
}

func (e *entrant) Hedge(n int, cancel context.CancelCauseFunc) race.Attempt {
	c := (*clientStream)(e)
	h := &hedgeAttempt{c: c, n: n}
	h.streamAttempt, h.opts = c.newAttempt(cancel, false)
	var to peer.Peer // filled before OnFinish
	h.opts = append(slices.Clip(h.opts), grpc.Peer(&to), grpc.OnFinish(func(error) { c.call.HedgePeer(&to) }))
	if c.goal == firstMessage {
		h.into = c.replies.Make()
	}
	return h
}

// hedgeAttempt is one hedge.
type hedgeAttempt struct {
	streamAttempt
	c    *clientStream
	n    int
	opts []grpc.CallOption
}

func (h *hedgeAttempt) Run(ctx context.Context) error {
	ctx = h.c.call.HedgeContext(ctx)
	if err := h.open(ctx, h.c, h.opts); err != nil {
		h.ClientStream = failedStream{ctx, err}
		h.ended = err
	} else if err := h.c.request.sendTo(h.ClientStream); err != nil && err != io.EOF { // EOF: the stream has ended; RecvMsg knows how
		h.ended = err
	} else if err := h.CloseSend(); err != nil {
		h.ended = err
	}
	if h.ended != nil {
		if h.c.goal == firstMessage {
			h.err = h.ended
		}
		return h.ended
	}
	err := h.awaitGoal(h.c, h.into)
	if err == nil {
		engine.HedgeAnswered(ctx)
	}
	return err
}
