package stream

import "io"

// Accepts implements [race.Judge] for the primary.
func (e *entrant) Accepts(error) (ok, open bool) {
	return e.primary.accepted((*clientStream)(e), 0, e.into)
}

// Accepts implements [race.Judge].
func (h *hedgeAttempt) Accepts(error) (ok, open bool) { return h.accepted(h.c, h.n, h.into) }

// accepted reports whether the first message of attempt n, or the end of its stream, is accepted, and whether the stream goes
// on. A race for response headers has no message to judge.
func (m *streamAttempt) accepted(c *clientStream, n int, message any) (ok, open bool) {
	if c.goal != firstMessage {
		return true, false
	}
	switch m.err {
	case nil:
		return c.call.Accepts(n, message, nil), true
	case io.EOF:
		return c.call.AcceptsNone(), false
	}
	return c.call.Accepts(n, nil, m.err), false
}
