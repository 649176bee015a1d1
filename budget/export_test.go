package budget

import "time"

const MaxBurst = maxBurst

// Spend pays from the burst alone.
func (b *Bucket) Spend(now time.Time, urgent bool, cost float64) bool {
	r := b.rate.Load()
	if r == nil {
		return false
	}
	earned, burst := b.earnings(r, now)
	return b.payFromBurst(b.elapsed(now), urgent, priceOf(unitsOf(cost)), earned, burst)
}

// SpendSaved pays from the savings alone.
func (b *Bucket) SpendSaved(now time.Time, cost float64) bool {
	r := b.rate.Load()
	if r == nil {
		return false
	}
	_, burst := b.earnings(r, now)
	return b.savings.pay(priceOf(unitsOf(cost)), burst)
}
