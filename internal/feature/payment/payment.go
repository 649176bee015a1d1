// Package payment has the gates through which a hedge passes when it is paid for.
package payment

import (
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/wire"
	"github.com/grpchedge/hedge/stats"
)

// Budget is the gate at which a hedge is paid for. It is the last one.
type Budget struct{}

// Admit takes the price of the hedge. One that is not the first, or that has waited for long, may be paid from savings.
func (Budget) Admit(d *feature.Due) feature.Verdict {
	paid := d.Payment.Pay(d.Now, d.N > 1 || d.Report.Repeated || d.Age() >= 2*d.Delay)
	return feature.Later(stats.BudgetExhausted).If(!paid)
}

func (Budget) GiveBack(c feature.Call) { c.Payment.Refund() }

// OfHedge is the gate that refuses hedges on behalf of another service's hedge.
type OfHedge struct{ Unbudgeted bool }

// Admit takes back what a call on behalf of a hedge has earned, so that such calls pay for no others.
func (o OfHedge) Admit(d *feature.Due) feature.Verdict {
	if !wire.ForHedge(d.Context) {
		return feature.Pass
	}
	if !o.Unbudgeted {
		d.Payment.TakeBack()
	}
	return feature.Never(stats.OfHedge)
}
