package hedge

import (
	"errors"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// Trace is a set of functions that a scheduler calls on events: see [WithTrace]. A nil function is
// not called. A call without a due hedge calls none of them.
//
// The functions may be called concurrently and without locks held, so they may use the scheduler. A
// function that blocks delays only its call, and Made delays New. A panic of a function surfaces in
// its call, or counts in stats.Counts.LoserPanics if the call was already decided.
type Trace struct {
	// Made is called by New with the scheduler, before New returns it.
	Made func(*Scheduler)
	// HedgeSent is called just before a hedge is sent, on the hedge's goroutine. If the call is
	// decided at that moment, CallDecided may be called first.
	HedgeSent func(stats.HedgeSent)
	// HedgeHeldBack is called when a hedge is due and is not sent, once per hedge and reason. A
	// server's pushback is a reason, and so is a request or reply that cannot be copied.
	HedgeHeldBack func(stats.HedgeHeldBack)
	// AttemptLost is called for each loser, unless the caller gave up, or its deadline passed,
	// before the call was decided.
	AttemptLost func(stats.AttemptLost)
	// CallDecided is called on the caller's goroutine when a call with at least one hedge ends,
	// after AttemptLost. A stream is decided by its first message, or by any other end of its race.
	CallDecided func(stats.CallDecided)
}

// WithTrace calls the functions of t on events. They cost nothing unless a hedge becomes due. The
// traces of repeated options are all called, in the order of the options. t must not be nil; later
// changes of t have no effect. [Scheduler.Update] keeps the traces.
func WithTrace(t *Trace) Option {
	return &setting{name: "WithTrace", to: forScheduler, set: func(c *config) error {
		if t == nil {
			return errors.New("hedge: WithTrace(nil): must not be nil")
		}
		t := *t
		c.Traced = true
		if t.Made != nil {
			c.made = append(c.made, t.Made)
		}
		c.Traces = append(c.Traces, func(event any) {
			switch e := event.(type) {
			case stats.HedgeSent:
				callHook(t.HedgeSent, e)
			case stats.HedgeHeldBack:
				callHook(t.HedgeHeldBack, e)
			case stats.AttemptLost:
				callHook(t.AttemptLost, e)
			case stats.CallDecided:
				callHook(t.CallDecided, e)
			}
		})
		return nil
	}}
}

func callHook[E any](hook func(E), event E) {
	if hook != nil {
		hook(event)
	}
}

// ErrLost is the [context.Cause] of the context of a loser, by which interceptors chained after
// hedging can distinguish it from a failure.
var ErrLost = rpc.ErrLost

// Panic is the panic of a hedge before its call is decided: the caller's goroutine panics with a
// *Panic. Value is the hedge's panic value, and Stack the stack of its goroutine, as
// [runtime/debug.Stack] formats it, without its first line.
//
// A *Panic is an error. Error returns the value and the stack. Unwrap returns the value if it is an
// error. A primary panics on the caller's goroutine with its own value, so code that recovers must
// handle both.
type Panic = race.Panic
