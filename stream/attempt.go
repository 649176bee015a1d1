package stream

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/race"
)

// member is one attempt of a stream, and what it had for the caller when the race was decided. Before that it belongs
// to the attempt's goroutine, and to RecvMsg afterwards.
type member struct {
	grpc.ClientStream
	results *attempt.Results
	cancel  context.CancelCauseFunc // frees its context; nil where the context is the caller's

	header metadata.MD
	err    error // of what the race was for
	into   any   // a first message that is not in the caller's
	held   bool  // into is what RecvMsg is to return
	ended  error // what RecvMsg is to return, where it is known that the stream ended without a message
}

// newMember returns an attempt whose stream is not yet open, and the options to open it with. The context that
// cancel frees is to be freed when the stream has ended for its caller. That gRPC's has ended is not enough, but when
// the connection closes: an interceptor in between may open another one, as one that retries does.
func (c *clientStream) newMember(cancel context.CancelCauseFunc, primary bool) (m member, opts []grpc.CallOption) {
	opts, m.results = c.options.Attempt(grpc.OnFinish(func(err error) { c.finished(primary, cancel, err) }))
	m.cancel = cancel
	return m, opts
}

func (m *member) open(ctx context.Context, c *clientStream, opts []grpc.CallOption) error {
	st, err := c.streamer(ctx, c.desc, c.cc, c.method, opts...)
	m.ClientStream = st
	return err
}

// reach waits for what the race is for and returns the attempt's outcome.
func (m *member) reach(c *clientStream, into any) error {
	if c.line == message {
		if m.err = m.ended; m.err == nil {
			m.err = m.RecvMsg(into)
		}
		return outcome(m.err)
	}
	m.header, m.err = m.Header()
	if m.header != nil || m.err != nil {
		return m.err
	}
	// It ended without headers, and how only RecvMsg tells. It may have a message all the same, of another stream that
	// an interceptor in between has opened.
	if m.ended == nil {
		m.into = c.types.empty(c.method, c.callOptions)
		m.ended = m.RecvMsg(m.into)
		m.held = m.ended == nil
	}
	return outcome(m.ended)
}

// keep has RecvMsg return later what the race was for: the first message.
func (m *member) keep() { m.held, m.ended = m.err == nil, m.err }

// answered reports whether it is known what RecvMsg is to return first.
func (m *member) answered() bool { return m.held || m.ended != nil }

// outcome is what the end of a receive means to a race: the end of the stream is an answer.
func outcome(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// entrant is a clientStream as its race sees it.
type entrant clientStream

func (e *entrant) Primary() error { return e.primary.reach((*clientStream)(e), e.into) }

func (e *entrant) Trailer() metadata.MD { return e.primary.Trailer() }

// Replayable says that nothing is shared: the request itself knows who reads the caller's memory.
func (e *entrant) Replayable() (ok, shared bool) { return e.request.replayable(), false }

func (e *entrant) Hedge(_ int, cancel context.CancelCauseFunc) race.Attempt {
	c := (*clientStream)(e)
	h := &hedged{c: c}
	h.member, h.opts = c.newMember(cancel, false)
	if !c.request.prepare() {
		return nil
	}
	if c.line == message {
		h.into = c.own.Make()
	}
	return h
}

// hedged is one hedge.
type hedged struct {
	member
	c    *clientStream
	opts []grpc.CallOption
}

func (h *hedged) Run(ctx context.Context) error {
	if err := h.open(h.c.call.HedgeContext(ctx), h.c, h.opts); err != nil {
		h.ClientStream = failed{ctx, err}
		h.ended = err
	} else if err := h.c.request.sendTo(h.ClientStream); err != nil && err != io.EOF { // EOF: the stream has ended; RecvMsg knows how
		h.ended = err
	} else if err := h.CloseSend(); err != nil {
		h.ended = err
	}
	if h.ended != nil {
		if h.c.line == message {
			h.err = h.ended
		}
		return h.ended
	}
	return h.reach(h.c, h.into)
}
