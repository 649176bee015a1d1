package stream

import "context"

// callContext is the context of a stream of which it is not decided yet which attempt it is. It ends when the stream
// does, or the caller's context, and has the values of the attempt that the stream is; until one is, of the primary.
type callContext struct {
	context.Context
	cancel context.CancelCauseFunc
	stream *clientStream
}

func (c *callContext) Value(key any) any {
	// Package context looks up by a key of its own what ends this context. That is nothing of an attempt's.
	if v := c.Context.Value(key); v == any(c.Context) {
		return v
	}
	m := c.stream.chosen.Load()
	if m == nil {
		m = &c.stream.primary
	}
	return m.Context().Value(key)
}

// Context is the chosen attempt's. Whoever asks before there is one may hold on to the answer, so it gets one that does
// not end with an attempt that loses.
func (c *clientStream) Context() context.Context {
	if ctx := c.context.Load(); ctx != nil {
		return ctx
	}
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.Context()
	}
	// With the lock held, because who ends the stream has chosen before, and then looks for this context.
	c.mu.Lock()
	ctx, chosen := c.context.Load(), c.chosen.Load()
	if ctx == nil && chosen == nil {
		ctx = &callContext{stream: c}
		ctx.Context, ctx.cancel = context.WithCancelCause(c.caller)
		c.context.Store(ctx)
	}
	c.mu.Unlock()
	if ctx == nil {
		return chosen.Context()
	}
	return ctx
}
