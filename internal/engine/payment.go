package engine

import (
	"time"

	"github.com/grpchedge/hedge/budget"
)

// payment is what pays for the hedges of a call: the target's budget and, where a rule gives the method one, its own as
// well.
type payment struct {
	target, own *budget.Bucket // own is nil if the method has none

	cost                  float64 // of the call, in calls
	priced                bool    // the cost is known, or is not asked for
	owes                  bool    // the share of the call is to be added when the cost is known
	savedTarget, savedOwn bool    // the last hedge was paid from savings
}

// open prepares the payment of a call, whose cost is 1 until setPrice says otherwise.
func (p *payment) open(s *terms, target *budget.Bucket) {
	p.target, p.own, p.cost, p.priced = target, s.own, 1, s.Cost == nil
}

// earn adds the share of the call to the budgets, unless its cost is still to come.
func (p *payment) earn(now time.Time) {
	if p.owes = !p.priced; p.owes {
		return
	}
	p.target.Earn(now, p.cost)
	if p.own != nil {
		p.own.Earn(now, p.cost)
	}
}

// setPrice says what the call costs.
func (p *payment) setPrice(now time.Time, cost float64) {
	p.cost, p.priced = cost, true
	if p.owes {
		p.earn(now)
	}
}

// pay takes the price of one hedge from every budget, from the savings if need be, or from none.
func (p *payment) pay(now time.Time, urgent bool) bool {
	paid := false
	if p.own != nil {
		if paid, p.savedOwn = p.own.Pay(now, urgent, p.cost); !paid {
			return false
		}
	}
	if paid, p.savedTarget = p.target.Pay(now, urgent, p.cost); !paid && p.own != nil {
		p.own.Refund(p.savedOwn, p.cost)
	}
	return paid
}

// refund gives back what was last paid.
func (p *payment) refund() {
	p.target.Refund(p.savedTarget, p.cost)
	if p.own != nil {
		p.own.Refund(p.savedOwn, p.cost)
	}
}

// takeBack takes back what the call has earned.
func (p *payment) takeBack() {
	if p.owes {
		return
	}
	p.target.TakeBack(p.cost)
	if p.own != nil {
		p.own.TakeBack(p.cost)
	}
}

// hedged takes note of how a hedged call ended.
func (p *payment) hedged(won bool) {
	p.target.Hedged(won)
	if p.own != nil {
		p.own.Hedged(won)
	}
}
