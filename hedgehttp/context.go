package hedgehttp

import (
	"context"
	"sync/atomic"
	"time"
)

// hedgeContext is the context of a hedge, with the values of the race's context, but without the
// caller's hooks.
type hedgeContext struct {
	context.Context
	race  context.Context // no value and no deadline once the hedge has lost
	hooks context.Context // of the hedge
}

func (c hedgeContext) Deadline() (time.Time, bool) { return c.race.Deadline() }

func (c hedgeContext) Value(key any) any {
	for _, in := range []context.Context{c.hooks, c.Context, c.race} {
		if v := in.Value(key); v != nil {
			return v
		}
	}
	return nil
}

// callersEnd is the parent of a hedge's context. It ends with the caller's context, by the same error
// and cause, and has none of its values: the hedge may lose.
type callersEnd struct {
	context.Context
	ending atomic.Bool
}

// Done is never closed: package context learns the end by AfterFunc.
func (*callersEnd) Done() <-chan struct{} { return never }

var never = make(chan struct{})

func (c *callersEnd) AfterFunc(end func()) (stop func() bool) {
	return context.AfterFunc(c.Context, func() {
		c.ending.Store(true) // end asks for the value that has the cause
		defer c.ending.Store(false)
		end()
	})
}

func (c *callersEnd) Value(key any) any {
	if c.ending.Load() {
		return c.Context.Value(key)
	}
	return nil
}
