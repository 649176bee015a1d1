package race

import (
	"context"
	"runtime"
	"weak"
)

// AttemptContext returns the context of an attempt. In a detached race it is one that may outlive the call: it has the values and
// the deadline of the caller's context, and ends with it until it is let go. cancel ends it, and frees what it holds.
func AttemptContext(caller context.Context, detached bool) (ctx context.Context, cancel context.CancelCauseFunc, letGo func()) {
	if !detached || caller.Done() == nil || caller.Err() != nil {
		ctx, cancel = context.WithCancelCause(caller)
		return ctx, cancel, func() {}
	}
	p, free := newWeakParent(caller), func() {}
	ctx = p
	if deadline, ok := caller.Deadline(); ok {
		ctx, free = context.WithDeadline(ctx, deadline)
	}
	ctx, end := context.WithCancelCause(ctx)
	cancel = func(cause error) {
		p.stop()
		end(cause)
		free()
	}
	return ctx, cancel, func() { p.stop() }
}

// WeakChild returns a child context of ctx to which ctx has only a weak reference, and a function that cancels the
// child, which need not be called. The child ends when ctx does, with the same error and cause. An ordinary child stays
// in memory until its parent ends or it is cancelled, so a long-lived parent would collect one for each call.
func WeakChild(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	if ctx.Done() == nil || ctx.Err() != nil { // such a parent has no references to its children
		return context.WithCancelCause(ctx)
	}
	return context.WithCancelCause(newWeakParent(ctx))
}

// weakParent is the parent of a weak child. The child and its weakParent refer to each other, and the caller's context has
// only a weak pointer to them. So both live as long as the child, or a context derived from it, is in use. Then a cleanup
// removes the callback from the caller's context.
type weakParent struct {
	context.Context
	done chan struct{}
	end  func()      // ends the child
	stop func() bool // what ends it when the caller's context does
}

func newWeakParent(ctx context.Context) *weakParent {
	return &weakParent{Context: ctx, done: make(chan struct{})}
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
	p.stop = stop
	runtime.AddCleanup(p, func(stop func() bool) { stop() }, stop)
	return stop
}
