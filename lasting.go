package hedge

import (
	"context"
	"runtime"
	"weak"
)

// lasting returns a context that ends when ctx does, with the error and the cause of ctx, and the function that ends it
// earlier. That function need not be called: ctx does not keep the context in memory, where an ordinary child that is
// never cancelled stays until its parent ends, call for call.
func lasting(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	if ctx.Done() == nil || ctx.Err() != nil { // such a parent keeps no child
		return context.WithCancelCause(ctx)
	}
	return context.WithCancelCause(&looseParent{Context: ctx, done: make(chan struct{})})
}

// looseParent stands between a context and its child, and holds the child that the context does not. The child refers
// to its parent, so that both live as long as somebody has the child or a context derived from it. When nobody has,
// the registration with the context is dropped.
type looseParent struct {
	context.Context
	done chan struct{}
	end  func() // ends the child
}

func (p *looseParent) Done() <-chan struct{} { return p.done }

// AfterFunc is how package context registers a child with a parent of a type that it does not know. It is called once.
func (p *looseParent) AfterFunc(end func()) (stop func() bool) {
	p.end = end
	loose := weak.Make(p)
	stop = context.AfterFunc(p.Context, func() {
		if p := loose.Value(); p != nil {
			close(p.done)
			p.end()
		}
	})
	runtime.AddCleanup(p, func(stop func() bool) { stop() }, stop)
	return stop
}
