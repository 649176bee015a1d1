package hedge

import (
	"context"
	"runtime"
	"weak"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/rpc"
)

// Do hedges a call of any kind, as the interceptors hedge gRPC calls. fn makes one attempt. The scheduler learns latencies
// under the names target and method, and keeps one budget for each target. The options that select methods, such as
// [WithMethods], apply to method. Do returns the value and the error of the attempt that decided the call. An error without a
// gRPC status is non-fatal: see [WithNonFatalCodes]. If s is nil, Do only calls fn. Do may be called concurrently.
//
// The primary runs on the caller's goroutine, and each hedge on a goroutine of its own. The context of an attempt is cancelled
// when another attempt wins. So fn must be safe to run several times at once, and must return promptly when its context ends. A
// losing fn may still be running when Do has returned. Its value is dropped. If such a value holds what must be closed, and its
// context does not do that, fn closes it by [context.AfterFunc].
//
// The context of the attempt that decided the call lives on after Do has returned, and ends when ctx does. So a value may
// depend on it, as an [net/http.Response] does while its body is read. There is nothing to release: the garbage collector frees
// it with the value, even if ctx lives as long as the program. Code that goes on after fn has returned must keep the context,
// or one derived from it: a goroutine that only waits for the channel of its Done may wait for ever, and a function of
// [context.AfterFunc] might not run. To hear of the end of ctx, use ctx itself. Under a ctx of a type that package context does
// not know, each value keeps a goroutine as well until it is freed.
func Do[T any](ctx context.Context, s *Scheduler, target, method string, fn func(context.Context) (T, error)) (T, error) {
	ctx = rpc.Unnumbered(ctx)
	d := &doCall[T]{call: call.Begin(registry.Of(s), ctx, target, method, nil)}
	d.call.OffWire = true
	d.call.Inspect(nil)
	if !d.call.Hedged() {
		value, err := fn(ctx)
		d.call.End(call.End{Err: err})
		return value, err
	}
	d.doAttempt = doAttempt[T]{call: &d.call, fn: fn}
	var cancel context.CancelCauseFunc
	attempts, end := weakChild(ctx)
	returned := false
	defer func() {
		if !returned { // an attempt panicked: there is no value that needs a context
			end(nil)
		}
	}()
	d.ctx, cancel = context.WithCancelCause(attempts)
	out := d.race.Run(attempts, cancel, d.call.Plan(), &d.call, d)
	returned = true
	if out.Untouched {
		d.call.End(call.End{Err: out.Err})
	}
	if out.Winner == nil {
		return d.value, out.Err
	}
	cancel(rpc.ErrLost) // the primary has lost or failed
	return out.Winner.(*doAttempt[T]).value, out.Err
}

// doCall is one call of Do, and its primary. It implements [race.Entrant].
type doCall[T any] struct {
	doAttempt[T]
	race race.Race
	call call.Call
	ctx  context.Context // the primary's
}

func (d *doCall[T]) Primary() error { return d.Run(d.ctx) }

func (d *doCall[T]) Replayable() bool { return true }

func (d *doCall[T]) Hedge(_ int, _ context.CancelCauseFunc) race.Attempt {
	return &doAttempt[T]{call: &d.call, fn: d.fn}
}

type doAttempt[T any] struct {
	call  *call.Call
	fn    func(context.Context) (T, error)
	value T
}

func (a *doAttempt[T]) Run(ctx context.Context) (err error) {
	a.value, err = a.fn(ctx)
	return err
}

// Accepts implements [race.Judge]. A value may depend on the context of its attempt.
func (a *doAttempt[T]) Accepts(err error) (ok, open bool) {
	return a.call.Accepts(a.value, err), err == nil
}

func (a *doAttempt[T]) Trailer() metadata.MD { return nil }

// Served implements [race.Attempt]. Only fn knows where its error is from.
func (a *doAttempt[T]) Served() bool { return true }

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
