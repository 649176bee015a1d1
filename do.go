package hedge

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/race"
)

// Do makes any call with the race that the interceptors make for gRPC: fn is one attempt of it. target and
// method name what is being called, as the key under which latencies are learned and, for the target, the
// budget is kept. Do returns the value and the error of the attempt that decided the call.
//
// The primary runs on the caller's goroutine, a hedge on one of its own with a context that is cancelled when
// another attempt wins. fn must therefore bear to run several times at once, must return promptly when its
// context ends, and may still be doing so after Do has returned. An error that carries no gRPC status is a
// non-fatal one: see [WithNonFatalCodes]. The value of a losing attempt is dropped.
func Do[T any](ctx context.Context, s *Scheduler, target, method string, fn func(context.Context) (T, error)) (T, error) {
	call := s.Begin(ctx, target, method, nil)
	call.Classify(nil)
	delay, ok := call.Delay()
	if !ok {
		value, err := fn(ctx)
		if err != nil && call.Heeds() {
			call.Failed(err, nil)
		}
		call.Ended(err)
		return value, err
	}
	d := &doing[T]{call: call, fn: fn}
	var cancel context.CancelCauseFunc
	d.ctx, cancel = context.WithCancelCause(ctx)
	defer cancel(nil)
	out := d.race.Run(ctx, cancel, delay, &d.call, d)
	if out.Winner == nil {
		return d.value, out.Err
	}
	out.Release(nil)
	return out.Winner.(*doingHedge[T]).value, out.Err
}

// doing is one Do, the race's entrant.
type doing[T any] struct {
	race  race.Race
	call  Call
	ctx   context.Context // the primary's
	fn    func(context.Context) (T, error)
	value T // the primary's
}

func (d *doing[T]) Primary() (err error) {
	d.value, err = d.fn(d.ctx)
	return err
}

func (d *doing[T]) Hedge(int, context.CancelCauseFunc) race.Attempt {
	return &doingHedge[T]{fn: d.fn}
}

func (d *doing[T]) Trailer() metadata.MD { return nil }

type doingHedge[T any] struct {
	fn    func(context.Context) (T, error)
	value T
}

func (h *doingHedge[T]) Run(ctx context.Context) (err error) {
	h.value, err = h.fn(ctx)
	return err
}

func (h *doingHedge[T]) Trailer() metadata.MD { return nil }
