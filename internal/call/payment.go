package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// Payment is what pays for the hedges of a call: the target's budget and, where a rule gives the
// method one, its own as well.
type Payment struct {
	Target, Own *budget.Bucket // Own is nil if the method has none
	Cost        float64        // of the call, in calls
	Priced      bool           // the cost is known, or is not asked for
	Owes        bool           // the share of the call is to be added when the cost is known

	last                  uint8 // the hedge that was paid last
	savedTarget, savedOwn uint8 // the hedges that were paid from savings, a bit each
}

// Earn adds the share of a call with the given delay to the budgets, unless its cost is unknown.
func (p *Payment) Earn(now time.Time, delay time.Duration) {
	if p.Owes = !p.Priced; p.Owes {
		return
	}
	p.Target.Earn(now, p.Cost, delay)
	if p.Own != nil {
		p.Own.Earn(now, p.Cost, delay)
	}
}

func (p *Payment) SetCost(now time.Time, cost float64, delay time.Duration) {
	p.Cost, p.Priced = cost, true
	if p.Owes {
		p.Earn(now, delay)
	}
}

// Pay takes the price of hedge n from every budget, from the savings if need be, or from none. For
// one that sends a call again, budgets may owe it.
func (p *Payment) Pay(now time.Time, n int, urgent, again bool) bool {
	p.last = uint8(n)
	if p.Own != nil && !p.pay(p.Own, &p.savedOwn, now, urgent, again) {
		return false
	}
	paid := p.pay(p.Target, &p.savedTarget, now, urgent, again)
	if !paid && p.Own != nil {
		p.Own.Refund(p.saved(p.savedOwn, p.last), false, p.Cost)
	}
	return paid
}

func (p *Payment) pay(b *budget.Bucket, from *uint8, now time.Time, urgent, again bool) bool {
	paid, saved := b.Pay(now, urgent || again, p.Cost)
	if !paid && again {
		paid = b.Owe(now, p.Cost)
	}
	if *from &^= 1 << p.last; saved {
		*from |= 1 << p.last
	}
	return paid
}

func (p *Payment) saved(from, n uint8) bool { return from&(1<<n) != 0 }

// Pretend takes the price of a hedge that a dry run does not send. Only the method's own budget
// pays for it.
func (p *Payment) Pretend(now time.Time) bool {
	paid, _ := p.Own.Pay(now, true, p.Cost)
	return paid
}

// Refund returns the price of the hedge that was paid last, which is not sent.
func (p *Payment) Refund() { p.refund(p.last, false) }

// TurnedAway returns nine tenths of the price of hedge n, which its server turned away.
func (p *Payment) TurnedAway(n int) { p.refund(uint8(n), true) }

func (p *Payment) refund(n uint8, sent bool) {
	p.Target.Refund(p.saved(p.savedTarget, n), sent, p.Cost)
	if p.Own != nil {
		p.Own.Refund(p.saved(p.savedOwn, n), sent, p.Cost)
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
