package budget

import "time"

const MaxBurst = maxBurst

// The variables that take parts out.
var (
	SavedBursts, LeastWins, MaxReserve = &savedBursts, &leastWins, &maxReserve
	BurstFirst, MostPrice, PerRefusal  = &burstFirst, &mostPrice, &perRefusal
	Prompt                             = &prompt
)

// Spend pays from the burst alone.
func (b *Bucket) Spend(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	b.cap()
	return b.payFromBurst()
}

// SpendSaved pays from the savings alone.
func (b *Bucket) SpendSaved(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	b.cap()
	return b.savings.pay()
}
