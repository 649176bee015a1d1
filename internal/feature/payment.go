package feature

import (
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// Payment is what pays for the hedges of a call: the target's budget and, where a rule gives the method one, its own as well.
type Payment struct {
	Target, Own *budget.Bucket // Own is nil if the method has none
	Cost        float64        // of the call, in calls
	Priced      bool           // the cost is known, or is not asked for
	Owes        bool           // the share of the call is to be added when the cost is known

	savedTarget, savedOwn bool // the last hedge was paid from savings
}

// Earn adds the share of the call to the budgets, unless its cost is still to come.
func (p *Payment) Earn(now time.Time) {
	if p.Owes = !p.Priced; p.Owes {
		return
	}
	p.Target.Earn(now, p.Cost)
	if p.Own != nil {
		p.Own.Earn(now, p.Cost)
	}
}

func (p *Payment) SetCost(now time.Time, cost float64) {
	p.Cost, p.Priced = cost, true
	if p.Owes {
		p.Earn(now)
	}
}

// Pay takes the price of one hedge from every budget, from the savings if need be, or from none. For one that sends a call again,
// budgets may owe it.
func (p *Payment) Pay(now time.Time, urgent, again bool) bool {
	paid := false
	if p.Own != nil {
		if paid, p.savedOwn = p.pay(p.Own, now, urgent, again); !paid {
			return false
		}
	}
	if paid, p.savedTarget = p.pay(p.Target, now, urgent, again); !paid && p.Own != nil {
		p.Own.Refund(p.savedOwn, p.Cost)
	}
	return paid
}

func (p *Payment) pay(b *budget.Bucket, now time.Time, urgent, again bool) (paid, saved bool) {
	if paid, saved = b.Pay(now, urgent || again, p.Cost); !paid && again {
		paid = b.Owe(now, p.Cost)
	}
	return paid, saved
}

// Pretend takes the price of a hedge that a dry run does not send. Only the method's own budget pays for it.
func (p *Payment) Pretend(now time.Time) bool {
	paid, _ := p.Own.Pay(now, true, p.Cost)
	return paid
}

func (p *Payment) Refund() {
	p.Target.Refund(p.savedTarget, p.Cost)
	if p.Own != nil {
		p.Own.Refund(p.savedOwn, p.Cost)
	}
}

func (p *Payment) Forfeit() {
	if p.Owes {
		return
	}
	p.Target.Forfeit(p.Cost)
	if p.Own != nil {
		p.Own.Forfeit(p.Cost)
	}
}

func (p *Payment) Hedged(won bool) {
	p.Target.Hedged(won)
	if p.Own != nil {
		p.Own.Hedged(won)
	}
}
