package stream

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/race"
)

// member is one attempt of a stream, and what it had for the caller at the finish line.
type member struct {
	grpc.ClientStream
	results *attempt.Results

	into   any // a hedge's first message
	header metadata.MD
	err    error
}

// newMember returns an attempt whose stream is not yet open, and the options to open it with. The context that
// cancel frees is to be freed when the stream has ended.
func (c *clientStream) newMember(cancel context.CancelCauseFunc) (m member, opts []grpc.CallOption) {
	opts, m.results = c.options.Attempt(grpc.OnFinish(cancel))
	return m, opts
}

func (m *member) open(ctx context.Context, c *clientStream, opts []grpc.CallOption) error {
	st, err := c.streamer(ctx, c.desc, c.cc, c.method, opts...)
	m.ClientStream = st
	return err
}

// reach waits for what the finish line asks for and returns the attempt's outcome.
func (m *member) reach(l line, into any) error {
	if l == message {
		m.err = m.RecvMsg(into)
		return outcome(m.err)
	}
	m.header, m.err = m.Header()
	if m.header == nil && m.err == nil {
		return errNoHeaders
	}
	return m.err
}

// errNoHeaders is the outcome of an attempt that ended without headers. Its status is for RecvMsg to tell; until
// then it is taken for a failure, and an attempt that has headers is preferred.
var errNoHeaders = errors.New("hedge: the stream ended without headers")

// outcome is what the end of a receive means to a race: the end of the stream is an answer.
func outcome(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// entrant is a clientStream as its race sees it.
type entrant clientStream

func (e *entrant) Primary() error { return e.primary.reach(e.line, e.into) }

func (e *entrant) Hedge(_ int, cancel context.CancelCauseFunc) race.Attempt {
	c := (*clientStream)(e)
	h := &hedged{c: c, line: c.line}
	h.member, h.opts = c.newMember(cancel)
	request, _ := c.replayable()
	h.request, _ = attempt.CopyRequest(request)
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
	if h.err = h.open(h.c.call.HedgeContext(ctx), h.c, h.opts); h.err != nil {
		return h.err
	}
	// An EOF says that the stream has ended; RecvMsg knows how.
	if h.err = h.SendMsg(h.request); h.err != nil && h.err != io.EOF {
		return h.err
	}
	if h.err = h.CloseSend(); h.err != nil {
		return h.err
	}
	return h.reach(h.line, h.into)
}
