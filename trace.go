package hedge

import (
	"errors"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// Trace is a set of functions that a scheduler calls when something happens: see [WithTrace]. A nil function is not called.
// Calls for which no hedge becomes due call none of them.
//
// The functions may be called concurrently. None is called under a lock, so they may use the scheduler. A function of a call
// that blocks delays that call and no other. Made, HedgingStepped and DistributionChanged are of no call: New waits for Made; the
// other two delay nothing, or at most the call that happened to teach the scheduler the change.
//
// A panic in HedgeSent, HedgeHeldBack, AttemptLost or CallDecided surfaces on the caller's goroutine, as a panic of the call
// would; if the call was decided before, it counts in stats.Counts.LoserPanics. Made panics on the goroutine of New. HedgingStepped
// and DistributionChanged often run on a goroutine of the scheduler's: a panic there ends the program.
type Trace struct {
	// Made is called by New with the scheduler, before New returns it.
	Made func(*Scheduler)
	// HedgeSent is called just before a hedge is sent, on the hedge's goroutine. If the call is decided at that moment,
	// CallDecided may be called first.
	HedgeSent func(stats.HedgeSent)
	// HedgeHeldBack is called when a hedge is due and is not sent. It is called once for each hedge and reason, as [stats.Counts]
	// counts them, and also when a server pushes back and when a request or reply turns out to be of a kind that cannot be
	// hedged.
	HedgeHeldBack func(stats.HedgeHeldBack)
	// AttemptLost is called for each attempt that was in flight when another one decided the call. It is not called if the
	// caller gave up, or its deadline passed, before the call was decided.
	AttemptLost func(stats.AttemptLost)
	// CallDecided is called when a call ends for which at least one hedge was sent, on the caller's goroutine, after
	// AttemptLost. For a stream this is when its first message, or whatever else decides it, has arrived.
	CallDecided func(stats.CallDecided)
	// HedgingStepped is called when the trigger Auto steps down for a method, steps up again, or changes why it has stepped
	// down.
	HedgingStepped func(stats.HedgingStepped)
	// DistributionChanged is called when the latencies of a method have changed at once, so that what was learned before is forgotten.
	DistributionChanged func(stats.DistributionChanged)
}

// WithTrace has the scheduler call the functions of t. They cost nothing unless a hedge becomes due. If the option is given
// more than once, all of them are called, in the order of the options. t must not be nil, and later changes of it have no
// effect.
func WithTrace(t *Trace) Option {
	return named("WithTrace", func(c *settings.Config) error {
		if t == nil {
			return errors.New("hedge: WithTrace(nil): there must be a trace")
		}
		if made := t.Made; made != nil {
			c.Made = append(c.Made, func(s any) { made(s.(*Scheduler)) })
		}
		c.Traces = append(c.Traces, &settings.Trace{
			HedgeSent: t.HedgeSent, HedgeHeldBack: t.HedgeHeldBack, AttemptLost: t.AttemptLost, CallDecided: t.CallDecided,
			HedgingStepped: t.HedgingStepped, DistributionChanged: t.DistributionChanged,
		})
		return nil
	})
}

// ErrLost is the [context.Cause] of the context of an attempt that was cancelled because another attempt of its call was
// faster. An interceptor or a stats.Handler inside of the hedging interceptor tells losers from failures by it.
var ErrLost = race.ErrLost

// Panic is the value of the panic on the caller's goroutine when a hedge panics before the call is decided. The value is
// always a *Panic:
//
//	type Panic struct {
//		Value any    // what the hedge panicked with
//		Stack []byte // the stack of the hedge's goroutine, as runtime/debug.Stack formats it, without its first line
//	}
//
// A *Panic is an error. Error returns the value and the stack. Unwrap returns the value if that is an error, so that
// [errors.Is] and [errors.As] find it. A panic of the primary happens on the caller's goroutine, and its value is unchanged.
type Panic = race.Panic
