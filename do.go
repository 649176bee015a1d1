package hedge

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"weak"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
)

// Do hedges any function the way the interceptors hedge gRPC calls. attempt makes one attempt. Do
// returns the value and the error of the attempt that decided the call. The options that select
// methods, such as [WithMethods], apply to method. An error without a gRPC status is non-fatal: see
// [WithNonFatalCodes]. If s is nil, Do only calls attempt. Do may be called concurrently.
//
// With functions in hedges, hedge n calls the n-th of them, such as a request to another provider;
// after the last one, the first is next. Each is a destination of its own, named after target:
// target#2 for the first hedge. Limits by the destination, such as [stats.Guard], apply to that name.
// The budget of target pays for all hedges. Nil functions in hedges are ignored.
//
// The primary runs on the caller's goroutine, and each hedge on its own. An attempt's context is
// canceled when another attempt wins, so attempt must be safe to run several times at once, and must
// return promptly once its context ends. A loser may still be running after Do has returned, and its
// value is dropped. If a value must be closed, let the function register that with
// [context.AfterFunc].
//
// The context of the attempt that decided the call stays valid after Do has returned, until ctx
// ends. So a value may depend on its context, as a [net/http.Response] does while its body is read.
// The garbage collector frees the context with the value.
//
// Note: code that continues after the function has returned must keep a reference to the attempt's context,
// or to a context derived from it. A goroutine with only its Done channel may wait forever, and a
// function of [context.AfterFunc] may not run; use ctx to wait for the end of ctx. If ctx has a
// type unknown to package context, each value keeps a goroutine until it is freed.
func Do[T any](
	ctx context.Context, s *Scheduler, target, method string, attempt func(context.Context) (T, error),
	hedges ...func(context.Context) (T, error),
) (T, error) {
	ctx = race.Unmarked(ctx, race.Of(ctx))
	d := &doCall[T]{call: call.Begin(s.registry(), ctx, target, method, nil)}
	d.call.OffWire = true
	d.call.Inspect(nil)
	d.doAttempt, d.ctx = doAttempt[T]{call: &d.call, fn: attempt}, ctx
	attempts, end, cancel := ctx, func(error) {}, func(error) {}
	if d.call.Hedged {
		d.hedgeBy(hedges, target)
		attempts, end = weakChild(ctx)
		d.ctx, cancel = context.WithCancelCause(attempts)
	}
	returned := false
	defer func() {
		if !returned { // an attempt panicked: no value needs a context
			end(nil)
		}
	}()
	out := d.call.Run(attempts, cancel, &d.race, d)
	returned = true
	if out.Winner == nil {
		return d.value, out.Err
	}
	cancel(rpc.ErrLost) // the primary is a loser, or has failed
	return out.Winner.(*doAttempt[T]).value, out.Err
}

func (d *doCall[T]) hedgeBy(hedges []func(context.Context) (T, error), target string) {
	if isNil := func(f func(context.Context) (T, error)) bool { return f == nil }; slices.ContainsFunc(hedges, isNil) {
		hedges = slices.DeleteFunc(slices.Clone(hedges), isNil) // the caller's slice stays as it is
	}
	if d.hedges = hedges; len(hedges) > 0 {
		d.call.GoElsewhere(func(n int) (string, call.Conn) {
			return fmt.Sprintf("%s#%d", target, 2+(n-1)%len(hedges)), nil
		}, true)
	}
}

// doCall is a call of Do, and its primary.
type doCall[T any] struct {
	doAttempt[T]
	race   race.Race
	call   call.Call
	ctx    context.Context                    // the primary's
	hedges []func(context.Context) (T, error) // in turn; empty: fn
}

func (d *doCall[T]) Primary() race.End { return d.run(d.ctx) }

func (d *doCall[T]) Replayable() bool { return true }

func (d *doCall[T]) Hedge(n int, _ *race.Context) race.Attempt {
	h := &doAttempt[T]{call: &d.call, fn: d.fn}
	if len(d.hedges) > 0 {
		h.fn = d.hedges[(n-1)%len(d.hedges)]
	}
	return h
}

type doAttempt[T any] struct {
	call  *call.Call
	fn    func(context.Context) (T, error)
	value T
}

func (a *doAttempt[T]) Run(ctx *race.Context) race.End { return a.run(ctx) }

func (a *doAttempt[T]) run(ctx context.Context) race.End {
	var err error
	a.value, err = a.fn(ctx)
	end := race.End{Err: err, Served: true, Open: err == nil} // only fn knows the origin of its error
	if a.call.Judged {
		end.Reply = a.value
	}
	return end
}

// weakChild returns a child of ctx that ctx refers to only weakly, so that it need not be canceled:
// a long-lived parent would accumulate one ordinary child per call. It ends when ctx does, with the
// same error and cause.
func weakChild(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	if ctx.Done() == nil || ctx.Err() != nil { // ctx does not refer to its children
		return context.WithCancelCause(ctx)
	}
	return context.WithCancelCause(&weakParent{Context: ctx, done: make(chan struct{})})
}

// weakParent is the parent of a weak child. Both live as long as the child, or a context derived
// from it, is referenced. After that, a cleanup removes the callback from the caller's context.
type weakParent struct {
	context.Context
	done chan struct{}
	end  func() // ends the child
}

func (p *weakParent) Done() <-chan struct{} { return p.done }

// AfterFunc is called once by package context, to register the child with this parent.
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
