package engine

import (
	"context"
	"time"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
)

// Trace is a set of functions that are called when something happens: see hedge.Trace. None is called under a lock. Those
// that are nil are not called.
type Trace struct {
	Sent     func(Sent)
	HeldBack func(HeldBack)
	Lost     func(Lost)
	Decided  func(Decided)
	Changed  func(Changed)

	NothingSelected func(NothingSelected)
	OddCost         func(OddCost)
}

// Traced is the call that something happened to.
type Traced struct {
	Context        context.Context // the caller's
	Target, Method string
}

// Sent is a hedge that was sent.
type Sent struct {
	Traced
	Hedge int
	Age   time.Duration // of the call
}

// HeldBack is a hedge that was due and was not sent.
type HeldBack struct {
	Traced
	Hedge  int
	Age    time.Duration
	Reason string
}

// Lost is an attempt that another one of its call was faster than.
type Lost struct {
	Traced
	Attempt int
	Ran     time.Duration
}

// Decided is a call with hedges that was decided.
type Decided struct {
	Traced
	Attempts, Winner int
	Delay, Age       time.Duration
	Err              error
}

// Changed is a change in what is known of a method.
type Changed struct {
	Target, Method, Class string
	learn.Change
}

// OddCost is the first invalid cost of a method's requests.
type OddCost struct {
	Target, Method string
	Cost           float64
}

// Outcome is what happened to a call: see hedge.Outcome.
type Outcome struct {
	Attempts, Winner int
	Delay            time.Duration
	Reason           string
	Poor             bool
}

func (c *Call) traced() Traced {
	return Traced{Context: c.ctx, Target: c.method.target.name, Method: c.method.name}
}

// Sent says that hedge n was sent.
func (c *Call) Sent(n int) {
	for _, t := range c.settings.Traces {
		if t.Sent != nil {
			t.Sent(Sent{Traced: c.traced(), Hedge: n, Age: c.Age()})
		}
	}
}

// holdBack counts why hedge n, which is due, is not sent.
func (c *Call) holdBack(n int, why reason) {
	c.method.counters.update(func(s *Stats) { *why.of(s)++ })
	c.tellHeldBack(n, why)
}

func (c *Call) tellHeldBack(n int, why reason) {
	c.why = why
	for _, t := range c.settings.Traces {
		if t.HeldBack != nil {
			t.HeldBack(HeldBack{Traced: c.traced(), Hedge: n, Age: c.Age(), Reason: why.String()})
		}
	}
}

// ReportRepeat says, after the race, that attempt n was sent because the call's connection was cut, and whether it decides the
// call.
func (c *Call) ReportRepeat(n int, decides bool) {
	if decides {
		c.winner = uint8(n)
	}
	if c.report != nil {
		c.report(Outcome{Attempts: n + 1, Winner: int(c.winner), Delay: c.delay, Reason: c.why.String()})
	}
}

// Tell says what happened in a race, after it was booked.
func (c *Call) Tell(r *race.Report) {
	c.winner = uint8(r.Winner)
	if c.report != nil {
		c.report(Outcome{
			Attempts: r.Hedges + 1, Winner: r.Winner, Delay: c.delay, Reason: c.why.String(),
			Poor: r.Attempts[r.Winner].End.IsPoor(),
		})
	}
	if r.Hedges == 0 {
		return
	}
	for _, t := range c.settings.Traces {
		t.tell(c, r)
	}
}

func (t *Trace) tell(c *Call, r *race.Report) {
	if t.Lost != nil && r.CallerGone == race.CallerStayed {
		for n := range r.Hedges + 1 {
			if a := &r.Attempts[n]; a.CutShort {
				t.Lost(Lost{Traced: c.traced(), Attempt: n, Ran: r.DecidedAt - a.SentAt})
			}
		}
	}
	if t.Decided != nil {
		t.Decided(Decided{
			Traced: c.traced(), Attempts: r.Hedges + 1, Winner: r.Winner, Delay: c.delay, Age: r.DecidedAt, Err: r.Err,
		})
	}
}

func (c *Call) tellOddCost(cost float64) {
	for _, t := range c.settings.Traces {
		if t.OddCost != nil {
			t.OddCost(OddCost{Target: c.method.target.name, Method: c.method.name, Cost: cost})
		}
	}
}

// reportUnhedged says what happens to a call unless it races.
func (c *Call) reportUnhedged() {
	if c.report == nil {
		return
	}
	o := Outcome{Attempts: 1, Reason: c.why.String()}
	if c.armed {
		o.Delay = c.delay
	}
	c.report(o)
}

// changed returns what is to be called when what is known of a method, or of a class of its requests, changes; nil if nobody
// wants to know.
func (e *Engine) changed(m *method, class string) func(learn.Change) {
	return func(change learn.Change) {
		for _, t := range e.config.Load().Traces {
			if t.Changed != nil {
				t.Changed(Changed{Target: m.target.name, Method: m.name, Class: class, Change: change})
			}
		}
	}
}
