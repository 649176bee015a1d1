// Package gate has the gates that go by what is known of the call and its target, and the observer that learns from calls.
package gate

import (
	"math"
	"os"
	"strconv"
	"time"

	"go.uber.org/atomic"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// Why hedging is paused.
const (
	BySwitch = "HEDGE_DISABLED" // the variable of the environment
	ByPause  = "Pause"
)

// Pause says whether and why hedging is paused: BySwitch, ByPause, or "" if it is not. All methods may be called concurrently.
type Pause struct{ atomic.String }

// Read reads the switch of the environment. In an emergency, any value that is not clearly a no must count as a yes.
func (p *Pause) Read() {
	value := os.Getenv(BySwitch)
	if yes, err := strconv.ParseBool(value); value != "" && (yes || err != nil) {
		p.Store(BySwitch)
	}
}

// Admit refuses: calls in flight get no more hedges.
func (p *Pause) Admit(*feature.Due) feature.Verdict {
	return feature.Never(stats.Paused).If(p.Load() != "")
}

// OfHedge is the gate that refuses hedges on behalf of another service's hedge.
type OfHedge struct{ Unbudgeted bool }

// Admit takes what the call has earned out of the budget, so that calls on behalf of hedges pay for no others.
func (o OfHedge) Admit(d *feature.Due) feature.Verdict {
	if !rpc.ForHedge(d.Context) {
		return feature.Pass
	}
	if !o.Unbudgeted {
		d.Payment.Forfeit()
	}
	return feature.Never(stats.OfHedge)
}

// Deadline refuses a hedge if an answer that takes the median would come after the deadline.
func Deadline(d *feature.Due) feature.Verdict {
	deadline, ok := d.Context.Deadline()
	return feature.Never(stats.DeadlineNear).If(ok && deadline.Sub(d.Now) <= d.Median())
}

// Wanted is the gate that lets as many hedges of a slow call pass as the trigger wants.
type Wanted struct{ Learning *learn.Config }

// Admit holds further hedges back for ever. The race may allow them, for rejected answers only: if they were refused, a rejected answer
// could not make them due any more.
//
// The first one is held back if what was learned since the call began says that it is due later. A burst of calls may begin
// before the last burst has been learned from. An estimate made under another configuration than the call's does not count.
func (w Wanted) Admit(d *feature.Due) feature.Verdict {
	newest := d.Learner().Estimate()
	switch {
	case !d.Slow:
		return feature.Pass
	case d.Turn > d.MaxHedges:
		return feature.Until(math.MaxInt64)
	case d.Turn > 1, d.Estimate == nil, newest == nil, newest == d.Estimate, newest.Delay <= d.Delay, !newest.MadeUnder(w.Learning):
		return feature.Pass
	}
	d.Delay = newest.Delay
	return feature.Until(d.Delay).If(d.Age() < d.Delay)
}

// PatientProbe lets a primary find out whether a silent backend answers at all: it holds the first hedge back for longer than
// the usual delay, up to a quarter of the time between start and deadline. A delay that was not learned says nothing about
// backends.
func PatientProbe(d *feature.Due) feature.Verdict {
	if !d.Slow || d.Turn != 1 || d.Estimate == nil {
		return feature.Pass
	}
	limit := time.Duration(math.MaxInt64)
	if deadline, ok := d.Context.Deadline(); ok {
		limit = deadline.Sub(d.Start) / 4
	}
	until := d.Record.PatientDelay(d.Delay, limit)
	return feature.Until(until).If(d.Age() < until)
}

// ClientBusy holds a hedge back while this process is short of processor time. The answer may lie
// unread, and reading it comes first.
func ClientBusy(d *feature.Due) feature.Verdict { return feature.Later(stats.ClientBusy).If(d.Busy) }

// Drawn sends a share of the hedges that are due.
func Drawn(d *feature.Due) feature.Verdict {
	return feature.Skip(stats.NotDrawn).If(d.Slow && !d.Draw(d.Turn))
}

// Ready holds a hedge back while the connection is not ready. A repeated call has lost its connection, so it passes.
func Ready(d *feature.Due) feature.Verdict {
	return feature.Later(stats.NotReady).If(d.Conn != nil && !d.Report.Repeated && d.Conn.GetState() != connectivity.Ready)
}

// OtherBackend is the gate of WithOtherBackendOnly. It reserves a connection that the call has not used, and holds the hedge back if
// there is none.
type OtherBackend struct{}

func (OtherBackend) Admit(d *feature.Due) feature.Verdict {
	return feature.Later(stats.NoOtherBackend).If(d.Conn != nil && !d.Report.Repeated && !d.Record.Reserve())
}

func (OtherBackend) Refund(c *feature.CallState) { c.Record.Unreserve(false) }

// Elsewhere is asked about a hedge that follows one that its server turned away. The hedge passes
// if there may be a ready backend that the call has not used. Otherwise it is due one delay later.
func Elsewhere(d *feature.Due) feature.Verdict {
	last := time.Duration(-1) // when a hedge was turned away
	for _, a := range d.Report.Attempts[:d.N] {
		if a.TurnedAway {
			last = max(last, a.EndedAt)
		}
	}
	if last < 0 || d.Record.Spare() || d.Record == nil && !d.OneConnection {
		return feature.Pass
	}
	return feature.Until(last + d.Delay).If(d.Age() < last+d.Delay)
}

// Budget is the gate at which a hedge is paid for. It is the last one.
type Budget struct{}

// Admit takes the price of the hedge. One that is not the first, or that has waited for long, is urgent. The budget may owe the price of
// one that sends the call again: without it the call fails.
func (Budget) Admit(d *feature.Due) feature.Verdict {
	again := d.Report.Repeated && d.Report.Attempts[d.N-1].Failed()
	paid := d.Payment.Pay(d.Now, d.N, d.N > 1 || d.Age() >= 2*d.Delay, again)
	return feature.Later(stats.BudgetExhausted).If(!paid)
}

func (Budget) Refund(c *feature.CallState) { c.Payment.Refund() }

func (Budget) TurnedAway(c *feature.CallState, n int) { c.Payment.TurnedAway(n) }
