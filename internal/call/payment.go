package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// payment pays for the hedges of a call, from the budgets of the method and the target.
type payment struct {
	// buckets are the method's, nil without a rule that gives it one, and the target's. Both are
	// nil if hedges cost nothing: such calls must not pay for other hedges.
	buckets [2]*budget.Bucket
	saved   [2]uint8 // the hedges that each bucket paid from savings, a bit each
	last    uint8    // the hedge that was paid for last
}

// earn adds the share of a call to the budgets.
func (p *payment) earn(now time.Time) {
	p.each(func(b *budget.Bucket, _ int) { b.Earn(now) })
}

func (p *payment) each(do func(b *budget.Bucket, i int)) {
	for i, b := range p.buckets {
		if b != nil {
			do(b, i)
		}
	}
}

// pay takes the price of hedge n from every budget, or from none. For a hedge that repeats the
// call, the budgets may borrow.
func (p *payment) pay(now time.Time, n int, keep float64, again bool) bool {
	p.last = uint8(n)
	for i, b := range p.buckets {
		if b == nil {
			continue
		}
		paid, saved := b.Pay(now, keep)
		if !paid && again {
			paid = b.Borrow(now)
		}
		if !paid {
			if own := p.buckets[0]; i > 0 && own != nil {
				own.Refund(p.fromSavings(0, n), false)
			}
			return false
		}
		if p.saved[i] &^= 1 << n; saved {
			p.saved[i] |= 1 << n
		}
	}
	return true
}

// fromSavings reports whether bucket i paid hedge n from its savings.
func (p *payment) fromSavings(i, n int) bool { return p.saved[i]&(1<<n) != 0 }

// pretend takes the price of a hedge that a dry run does not send. Only the method's own budget
// pays.
func (p *payment) pretend(now time.Time) bool {
	if p.buckets[0] == nil {
		return true
	}
	paid, _ := p.buckets[0].Pay(now, 0)
	return paid
}

// refund returns the price of the hedge that was paid for last, if that hedge is not sent.
func (p *payment) refund() {
	p.each(func(b *budget.Bucket, i int) { b.Refund(p.fromSavings(i, int(p.last)), false) })
}

// turnedAway returns nine tenths of the price of hedge n, after its server has turned it away.
func (p *payment) turnedAway(n int) {
	p.each(func(b *budget.Bucket, i int) { b.Refund(p.fromSavings(i, n), true) })
}

func (p *payment) forfeit() { p.each(func(b *budget.Bucket, _ int) { b.Forfeit() }) }

func (p *payment) hedged(won bool) {
	p.each(func(b *budget.Bucket, _ int) { b.Hedged(won) })
}
