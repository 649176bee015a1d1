package stream

import (
	"context"
	"io"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/wire"
)

// Drain receives and drops the rest of a primary that has lost a detached race.
func (e *entrant) Drain() { e.primary.drain((*clientStream)(e)) }

// Drain does the same for a hedge.
func (h *hedgeAttempt) Drain() { h.drain(h.c) }

// drain receives and drops the rest of the stream, until it ends, or its context does.
func (m *streamAttempt) drain(c *clientStream) {
	if m.ended != nil || m.err == io.EOF {
		return
	}
	into := m.into
	if into == nil {
		into = c.types.empty(c.method, c.callOptions)
	}
	for m.RecvMsg(into) == nil {
	}
}

// repeat makes further attempts of a stream that has failed before its first message because its connection was cut after
// resets. failed is the attempt that failed. repeat returns the one that decides the call. It runs on the caller's
// goroutine.
func (c *clientStream) repeat(out race.Outcome, failed *streamAttempt) *streamAttempt {
	err := out.Err
	for n := out.Hedges + 1; c.request.replayable() && c.call.Repeats(err); n++ {
		ctx, cancel := context.WithCancelCause(wire.HedgeContext(c.caller, n))
		h := (*entrant)(c).Hedge(n, cancel).(*hedgeAttempt)
		err = h.Run(ctx)
		decides := c.call.Decides(err)
		c.call.ReportRepeat(n, decides)
		if decides {
			return &h.streamAttempt
		}
		cancel(race.ErrLost)
	}
	return failed
}
