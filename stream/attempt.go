package stream

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/race"
)

// member is one attempt of a stream, and what it had for the caller at the finish line.
type member struct {
	grpc.ClientStream
	results *attempt.Results
	cancel  context.CancelCauseFunc // frees its context; nil where the context is the caller's

	into   any // a hedge's first message
	header metadata.MD
	err    error
	ended  error // what RecvMsg is to return, where it is known that the stream ended without a message
}

// newMember returns an attempt whose stream is not yet open, and the options to open it with. The context that
// cancel frees is to be freed when the stream has ended for its caller. That gRPC's has ended is not enough, but when
// the connection closes: an interceptor in between may open another one, as one that retries does.
func (c *clientStream) newMember(cancel context.CancelCauseFunc) (m member, opts []grpc.CallOption) {
	opts, m.results = c.options.Attempt(grpc.OnFinish(func(err error) {
		if c.cc != nil && c.cc.GetState() == connectivity.Shutdown {
			cancel(err)
		}
	}))
	m.cancel = cancel
	return m, opts
}

// done frees the attempt's context once err, which its caller is told, says that the stream is over.
func (m *member) done(err error) {
	if err != nil && m.cancel != nil {
		m.cancel(err)
	}
}

func (m *member) open(ctx context.Context, c *clientStream, opts []grpc.CallOption) error {
	st, err := c.streamer(ctx, c.desc, c.cc, c.method, opts...)
	m.ClientStream = st
	return err
}

// reach waits for what the finish line asks for and returns the attempt's outcome.
func (m *member) reach(l line, c *clientStream, into any) error {
	if l == message {
		m.err = m.receive(into)
		return outcome(m.err)
	}
	m.header, m.err = m.Header()
	if m.header != nil || m.err != nil {
		return m.err
	}
	// It ended without headers, and how is for RecvMsg to tell: it has no message to receive.
	if m != &c.primary || c.heeds {
		m.ended = m.receive(new(emptypb.Empty))
	}
	if c.committed {
		return outcome(m.ended)
	}
	return noHeaders{outcome(m.ended)}
}

// receive is RecvMsg.
func (m *member) receive(into any) error {
	if m.ended != nil {
		return m.ended
	}
	return m.RecvMsg(into)
}

// noHeaders is the outcome of an attempt that ended without headers, err if that is known and no success. It is
// taken for a failure in any case, so that an attempt that has headers is preferred.
type noHeaders struct{ err error }

func (noHeaders) Error() string { return "hedge: the stream ended without headers" }

// outcome is what the end of a receive means to a race: the end of the stream is an answer.
func outcome(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// headers is Header, and send is SendMsg, after which the caller may be done with the stream.
func (m *member) headers() (metadata.MD, error) {
	header, err := m.Header()
	m.done(err)
	return header, err
}

func (m *member) send(msg any) error {
	err := m.SendMsg(msg)
	if err != io.EOF { // of which RecvMsg tells more
		m.done(err)
	}
	return err
}

// entrant is a clientStream as its race sees it.
type entrant clientStream

func (e *entrant) Primary() error { return e.primary.reach(e.line, (*clientStream)(e), e.into) }

func (e *entrant) Trailer() metadata.MD { return e.primary.Trailer() }

func (e *entrant) Replayable() (ok, shared bool) {
	c := (*clientStream)(e)
	request, ok := c.replayable()
	if ok && !c.repeats {
		c.repeat, c.repeats = attempt.NewRequest(request), true
	}
	return ok && c.repeat.Replayable(), ok && c.repeat.Shared()
}

func (e *entrant) Hedge(_ int, cancel context.CancelCauseFunc) race.Attempt {
	c := (*clientStream)(e)
	request, ok := c.repeat.Repeat()
	if !ok {
		return nil
	}
	h := &hedged{c: c, line: c.line, request: request}
	h.member, h.opts = c.newMember(cancel)
	if h.line == message {
		h.into = c.own.Make()
	}
	return h
}

// hedged is one hedge.
type hedged struct {
	member
	c       *clientStream
	line    line
	opts    []grpc.CallOption
	request any
}

func (h *hedged) Run(ctx context.Context) error {
	if err := h.open(h.c.call.HedgeContext(ctx), h.c, h.opts); err != nil {
		h.ClientStream = failed{ctx, err}
		h.ended = err
	} else if err := h.SendMsg(h.request); err != nil && err != io.EOF { // EOF: the stream has ended; RecvMsg knows how
		h.ended = err
	} else if err := h.CloseSend(); err != nil {
		h.ended = err
	}
	if h.ended != nil {
		if h.line == message {
			h.err = h.ended
		}
		return h.ended
	}
	return h.reach(h.line, h.c, h.into)
}
