package hedge

import (
	"context"
	"runtime"
	"weak"
)

// weakChild returns a child context of ctx to which ctx has only a weak reference, and a function that cancels the
// child, which need not be called. The child ends when ctx does, with the same error and cause. An ordinary child stays
// in memory until its parent ends or it is cancelled, so a long-lived parent would collect one for each call.
func weakChild(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	if ctx.Done() == nil || ctx.Err() != nil { // such a parent has no references to its children
		return context.WithCancelCause(ctx)
	}
	return context.WithCancelCause(&weakParent{Context: ctx, done: make(chan struct{})})
}

// weakParent is the parent of a weak child. The child and its weakParent refer to each other, and the caller's context has
// only a weak pointer to them. So both live as long as the child, or a context derived from it, is in use. Then a cleanup
// removes the callback from the caller's context.
type weakParent struct {
	context.Context
	done chan struct{}
	end  func() // ends the child
}

func (p *weakParent) Done() <-chan struct{} { return p.done }

// AfterFunc is called by package context, once, to register the child with this parent.
func (p *weakParent) AfterFunc(end func()) (stop func() bool) {
	p.end = end
	weakly := weak.Make(p)
	stop = context.AfterFunc(p.Context, func() {
		if p := weakly.Value(); p != nil {
			close(p.done)
			p.end()
		}
	})
	runtime.AddCleanup(p, func(stop func() bool) { stop() }, stop)
	return stop
}
