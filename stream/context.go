package stream

import "context"

// callContext is the context of a stream for which no attempt was chosen when Context was called. It ends when the stream or
// the caller's context ends. Its values are those of the chosen attempt, or of the primary while none is chosen.
type callContext struct {
	context.Context
	cancel context.CancelCauseFunc
	stream *clientStream
}

func (c *callContext) Value(key any) any {
	// Package context looks up the enclosing cancellable context by a key of its own. The answer must be the embedded
	// context, which ends this one, and not an attempt's.
	if v := c.Context.Value(key); v == any(c.Context) {
		return v
	}
	m := c.stream.chosen.Load()
	if m == nil {
		m = &c.stream.primary
	}
	return m.Context().Value(key)
}

// Context is the chosen attempt's. Before one is chosen it returns a callContext, which does not end when an attempt loses.
func (c *clientStream) Context() context.Context {
	if ctx := c.context.Load(); ctx != nil {
		return ctx
	}
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.Context()
	}
	// The lock orders this with the end of the stream: done looks for this context after an attempt was
	// chosen under the lock.
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
