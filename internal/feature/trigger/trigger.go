// Package trigger has the gates that go by what was learned of a method: whether a hedge that is due is still wanted.
package trigger

import (
	"math"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/stats"
)

// Deadline is the gate that refuses a hedge if an answer that takes the median would come after the deadline.
type Deadline struct{}

func (Deadline) Admit(d *feature.Due) feature.Verdict {
	deadline, ok := d.Context.Deadline()
	return feature.Never(stats.DeadlineNear).If(ok && deadline.Sub(d.Now) <= d.Median())
}

// Wanted is the gate of the hedges that the trigger wants of a slow call.
type Wanted struct{ Learning *learn.Config }

// Admit lets as many hedges pass as the trigger wants. The race may allow more, for poor answers only. Those are held
// back for ever: if they were refused, a poor answer could not make them due any more.
//
// The first one is held back if what was learned since the call began says that it is due later. A burst of calls may begin
// before the last burst has been learned from. An estimate made under another configuration than the call's does not count.
func (w Wanted) Admit(d *feature.Due) feature.Verdict {
	if !d.Slow {
		return feature.Pass
	}
	if d.Turn > d.MaxHedges {
		return feature.Until(math.MaxInt64)
	}
	if d.Turn > 1 || d.Estimate == nil {
		return feature.Pass
	}
	newest := d.Learner().Estimate()
	if newest == nil || newest == d.Estimate || newest.Delay <= d.Delay || !newest.MadeUnder(w.Learning) {
		return feature.Pass
	}
	d.Delay = newest.Delay
	return feature.Until(d.Delay).If(d.Age() < d.Delay)
}

// Drawn is the gate that sends a share of the hedges that are due.
type Drawn struct{}

func (Drawn) Admit(d *feature.Due) feature.Verdict {
	return feature.Skip(stats.NotDrawn).If(d.Slow && !d.Draw(d.Turn, d.Now))
}
