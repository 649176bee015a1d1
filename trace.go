package hedge

import (
	"errors"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// Trace is a set of functions that a scheduler calls when something happens: see [WithTrace]. A nil function is not
// called. Calls for which no hedge becomes due call none of them.
//
// The functions may be called concurrently and under no lock, so they may use the scheduler. HedgeSent, HedgeHeldBack,
// AttemptLost and CallDecided belong to a call: while one of them blocks, it delays that call and no other. New waits
// for Made.
//
// A panic in a function that belongs to a call surfaces on the caller's goroutine. If the call was decided before, the
// panic counts in stats.Counts.LoserPanics instead. A panic in Made surfaces in New.
type Trace struct {
	// Made is called by New with the scheduler, before New returns it.
	Made func(*Scheduler)
	// HedgeSent is called just before a hedge is sent, on the hedge's goroutine. If the call is decided at that moment,
	// CallDecided may be called first.
	HedgeSent func(stats.HedgeSent)
	// HedgeHeldBack is called when a hedge is due and is not sent, once for each hedge and reason, as [stats.Counts] counts them.
	// It is also called when a server pushes back, and when a request or a reply cannot be copied for a hedge.
	HedgeHeldBack func(stats.HedgeHeldBack)
	// AttemptLost is called for each attempt that was in flight when another one decided the call. It is not called if
	// the caller gave up, or its deadline passed, before.
	AttemptLost func(stats.AttemptLost)
	// CallDecided is called on the caller's goroutine when a call ends for which at least one hedge was sent, after
	// AttemptLost. A stream is decided by its first message, or by whatever else ends its race.
	CallDecided func(stats.CallDecided)
}

// WithTrace calls the functions of t when something happens. They cost nothing unless a hedge becomes due. If the option is given
// more than once, all of them are called, in the order of the options. t must not be nil. Later changes of t have no effect. The
// scheduler keeps its traces: see [Scheduler.Update].
func WithTrace(t *Trace) Option {
	return named("WithTrace", func(c *config) error {
		if t == nil {
			return errors.New("hedge: WithTrace(nil): there must be a trace")
		}
		t := *t
		c.Traced = true
		if t.Made != nil {
			c.made = append(c.made, t.Made)
		}
		c.Traces = append(c.Traces, func(event any) {
			switch e := event.(type) {
			case stats.HedgeSent:
				tell(t.HedgeSent, e)
			case stats.HedgeHeldBack:
				tell(t.HedgeHeldBack, e)
			case stats.AttemptLost:
				tell(t.AttemptLost, e)
			case stats.CallDecided:
				tell(t.CallDecided, e)
			}
		})
		return nil
	})
}

func tell[E any](of func(E), event E) {
	if of != nil {
		of(event)
	}
}

// ErrLost is the [context.Cause] of the context of a losing attempt. With it, an interceptor or a stats.Handler inside
// of the hedging interceptor can tell losers from failures.
var ErrLost = rpc.ErrLost

// Panic is the value of the panic on the caller's goroutine when a hedge panics before the call is decided. The value is always a
// *Panic:
//
//	type Panic struct {
//		Value any    // what the attempt panicked with
//		Stack []byte // the stack of its goroutine, as runtime/debug.Stack formats it, without its first line
//	}
//
// A *Panic is an error. Error returns the value and the stack. Unwrap returns the value if that is an error, so that [errors.Is]
// and [errors.As] find it. A primary panics on the caller's goroutine, and its value is unchanged. So code that recovers must look
// for both.
type Panic = race.Panic
