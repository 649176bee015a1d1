package stream

import "io"

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
