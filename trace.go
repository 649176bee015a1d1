package hedge

import (
	"context"
	"errors"
	"time"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/race"
)

// Trace is a set of functions that a scheduler calls when something happens: see [WithTrace]. A nil function is not called.
// Calls for which no hedge becomes due call none of them.
//
// The functions may be called concurrently. None is called under a lock, so they may use the scheduler. A function of a call
// that blocks delays that call and no other. Made, HedgingStepped and LawChanged are of no call: New waits for Made; the
// other two delay nothing, or at most the call that happened to teach the scheduler the change.
//
// A panic in HedgeSent, HedgeHeldBack, AttemptLost or CallDecided surfaces on the caller's goroutine, as a panic of the call
// would; if the call was decided before, it counts in Stats.LoserPanics. Made panics on the goroutine of New. HedgingStepped
// and LawChanged often run on a goroutine of the scheduler's: a panic there ends the program.
type Trace struct {
	// Made is called by New with the scheduler, before New returns it.
	Made func(*Scheduler)
	// HedgeSent is called just before a hedge is sent, on the hedge's goroutine. If the call is decided at that moment,
	// CallDecided may be called first.
	HedgeSent func(HedgeSent)
	// HedgeHeldBack is called when a hedge is due and is not sent. It is called once for each hedge and reason, as [Stats]
	// counts them, and also when a server pushes back and when a request or reply turns out to be of a kind that cannot be
	// hedged.
	HedgeHeldBack func(HedgeHeldBack)
	// AttemptLost is called for each attempt that was in flight when another one decided the call. It is not called if the
	// caller gave up, or its deadline passed, before the call was decided.
	AttemptLost func(AttemptLost)
	// CallDecided is called when a call ends for which at least one hedge was sent, on the caller's goroutine, after
	// AttemptLost. For a stream this is when its first message, or whatever else decides it, has arrived.
	CallDecided func(CallDecided)
	// HedgingStepped is called when the trigger Auto steps down for a method, steps up again, or changes why it has stepped
	// down.
	HedgingStepped func(HedgingStepped)
	// LawChanged is called when the latencies of a method have changed at once, so that what was learned before is forgotten.
	LawChanged func(LawChanged)
}

// TracedCall is the call that an event is about.
type TracedCall struct {
	// Context is the caller's context. Tracing libraries keep the span of the call in it.
	Context context.Context
	// Target and Method are those of [TargetStats].
	Target, Method string
}

// HedgeSent is the event that a hedge was sent.
type HedgeSent struct {
	TracedCall
	// Hedge is its number, 1 for the first of the call.
	Hedge int
	// Age is how long the call had lasted.
	Age time.Duration
}

// HedgeHeldBack is the event that a hedge was due and was not sent.
type HedgeHeldBack struct {
	TracedCall
	// Hedge is the number that it would have had, 1 for the first of the call.
	Hedge int
	// Age is how long the call had lasted.
	Age    time.Duration
	Reason Reason
}

// AttemptLost is the event that an attempt was cancelled because another one of its call was faster.
type AttemptLost struct {
	TracedCall
	// Attempt is its number: 0 for the primary, n for hedge n.
	Attempt int
	// Ran is how long it had been in flight. That is what hedging wasted.
	Ran time.Duration
}

// CallDecided is the event that a hedged call has ended.
type CallDecided struct {
	TracedCall
	// Attempts is the number of attempts sent, 2 or more, and Winner the one whose outcome the caller gets: 0 for the primary,
	// n for hedge n.
	Attempts, Winner int
	// Delay is the delay that was in force, and Age how long the call had lasted when it was decided.
	Delay, Age time.Duration
	// Err is the error that the caller gets, nil for an answer. It is nil, too, if the winner panicked.
	Err error
}

// HedgingStepped is the event that the trigger [Auto] has stepped down or up.
type HedgingStepped struct {
	Target, Method string
	// Class is the class of requests, with [WithClass]; empty for the method as a whole.
	Class string
	// Reason is why hardly any call is hedged, in a sentence, as in Choice.SteppedDown. It is empty if hedging has stepped
	// up.
	Reason string
}

// LawChanged is the event that latencies have changed at once.
type LawChanged struct {
	Target, Method string
	// Class is the class of requests, with [WithClass]; empty for the method as a whole.
	Class string
}

// WithTrace has the scheduler call the functions of t. They cost nothing unless a hedge becomes due. If the option is given
// more than once, all of them are called, in the order of the options. t must not be nil, and later changes of it have no
// effect.
func WithTrace(t *Trace) Option {
	return named("WithTrace", func(c *engine.Config) error {
		if t == nil {
			return errors.New("hedge: WithTrace(nil): there must be a trace")
		}
		if made := t.Made; made != nil {
			c.Made = append(c.Made, func(s any) { made(s.(*Scheduler)) })
		}
		c.Traces = append(c.Traces, t.inner())
		return nil
	})
}

// inner returns the trace as the engine uses it.
func (t *Trace) inner() *engine.Trace {
	e := &engine.Trace{}
	if f := t.HedgeSent; f != nil {
		e.Sent = func(s engine.Sent) { f(HedgeSent{TracedCall(s.Traced), s.Hedge, s.Age}) }
	}
	if f := t.HedgeHeldBack; f != nil {
		e.HeldBack = func(h engine.HeldBack) { f(HedgeHeldBack{TracedCall(h.Traced), h.Hedge, h.Age, Reason(h.Reason)}) }
	}
	if f := t.AttemptLost; f != nil {
		e.Lost = func(l engine.Lost) { f(AttemptLost{TracedCall(l.Traced), l.Attempt, l.Ran}) }
	}
	if f := t.CallDecided; f != nil {
		e.Decided = func(d engine.Decided) {
			f(CallDecided{TracedCall(d.Traced), d.Attempts, d.Winner, d.Delay, d.Age, d.Err})
		}
	}
	if stepped, law := t.HedgingStepped, t.LawChanged; stepped != nil || law != nil {
		e.Changed = func(c engine.Changed) {
			switch {
			case c.LawChanged && law != nil:
				law(LawChanged{c.Target, c.Method, c.Class})
			case !c.LawChanged && stepped != nil:
				stepped(HedgingStepped{c.Target, c.Method, c.Class, steppedDown(c.Choice)})
			}
		}
	}
	return e
}

// ErrLost is the [context.Cause] of the context of an attempt that was cancelled because another attempt of its call was
// faster. An interceptor or a stats.Handler inside of the hedging interceptor tells losers from failures by it.
var ErrLost = race.ErrLost
