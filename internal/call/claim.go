package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/race"
)

// attempts has the state of each attempt of a call, by number: nil until its first hedge is due.
type attempts [race.MaxAttempts]struct {
	to      *destination // nil: the call's own
	claim   claim
	counted bool // its failure was counted
}

// ensureAttempts returns the attempts of the call. The first call makes them. It is called before the
// race, by Admit and at the end of the race, which do not overlap.
func (c *Call) ensureAttempts() *attempts {
	if c.attempts == nil {
		c.attempts = new(attempts)
	}
	return c.attempts
}

// claim is a hedge's share of the limits: its price, and a reset at the call's target and at the hedge's
// destination, because the loser may be at either. A claim ends exactly once. If the hedge is sent, the
// claim is spent; if it is not sent, or is turned away, settle gives the claim back.
type claim struct {
	resets [2]*guard.Resets
	paid   [2]*budget.Bucket
	saved  [2]bool // the bucket paid from its savings
}

// takeResets takes a reset from each of the two targets, which may be the same. If it returns false, the
// caller must settle the claim.
func (k *claim) takeResets(own, to *guard.Resets, now time.Time) bool {
	for i, r := range [...]*guard.Resets{own, to} {
		if i > 0 && to == own {
			continue
		}
		if !r.Admit(now) {
			return false
		}
		k.resets[i] = r
	}
	return true
}

// pay takes the price from each budget. To rescue a call, the budgets may borrow. If pay returns
// false, the caller must settle the claim.
func (k *claim) pay(p payment, now time.Time, keep float64, rescue bool) bool {
	for i, b := range p.buckets {
		if b == nil {
			continue
		}
		paid, saved := b.Pay(now, keep)
		if !paid && (!rescue || !b.Borrow(now)) {
			return false
		}
		k.paid[i], k.saved[i] = b, saved
	}
	return true
}

// settle gives the claim back. Of a hedge that its server turned away, the budgets keep a tenth of the
// price.
func (k *claim) settle(turnedAway bool) {
	for i := range 2 {
		if r := k.resets[i]; r != nil {
			r.Refund()
		}
		if b := k.paid[i]; b != nil {
			b.Refund(k.saved[i], turnedAway)
		}
	}
	*k = claim{}
}

// settleUnsent settles the claims of hedges that were admitted and not sent, when sent hedges were.
func (c *Call) settleUnsent(sent int) {
	if c.attempts != nil {
		for n := sent + 1; n < race.MaxAttempts; n++ {
			c.attempts[n].claim.settle(false)
		}
	}
}

// payment has the budgets that pay for the hedges of a call: the method's, or nil if no rule gives the
// method a budget, and the target's. Both are nil if hedges cost nothing: such calls must not pay for
// other hedges.
type payment struct{ buckets [2]*budget.Bucket }

// earn adds the share of a call to the budgets.
func (p *payment) earn(now time.Time, delay time.Duration) {
	p.each(func(b *budget.Bucket) { b.Earn(now, delay) })
}

func (p *payment) each(do func(b *budget.Bucket)) {
	for _, b := range p.buckets {
		if b != nil {
			do(b)
		}
	}
}

// pretend takes the price of a hedge that a dry run does not send. Only the method's own budget
// pays.
func (p *payment) pretend(now time.Time) bool {
	if p.buckets[0] == nil {
		return true
	}
	paid, _ := p.buckets[0].Pay(now, 0)
	return paid
}

func (p *payment) forfeit() { p.each((*budget.Bucket).Forfeit) }

func (p *payment) hedged(won bool) { p.each(func(b *budget.Bucket) { b.Hedged(won) }) }
