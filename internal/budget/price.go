package budget

import (
	"math"
	"time"
)

const (
	// LeastPrice is the price, in gain, while the budget can pay for every hedge that is worth it.
	// At this price, hedges for 10% of calls must make the slower half of calls 7% faster on
	// average.
	LeastPrice = 0.7
	// The price changes by a factor of e for each capacity of the bucket and its savings, but at
	// least settling tokens, that is spent in excess or left over.
	settling = 15.0
)

// Constants, but TestParts takes parts out by setting them.
var (
	// mostPrice bounds the time that the price needs to fall.
	mostPrice = 20.0
	// perRefusal is the weight of a refused hedge, in hedges. The same hedge is refused several times.
	perRefusal = 0.25
)

// market sets the price of hedges for all methods of a target.
type market struct {
	price float64 // 0 before it is first set
	calls float64 // in total

	earned, spent, refused float64 // tokens, since the price was set
	total                  float64 // tokens spent before that
}

// Market is the input of a method's plan.
type Market struct {
	Price    float64 // the gain required per hedge
	Calls    float64 // of the target, in total
	PerCall  float64 // tokens that a call earns
	Spent    float64 // tokens of the target, in total
	Capacity float64 // the most tokens that the bucket and its savings can hold
	Tokens   float64 // the most tokens that can pay now: without savings while these do not pay
}

// Market returns the market at now. The price rises while hedges spend or request more than calls
// earn, and falls while they spend less.
func (b *Bucket) Market(now time.Time) Market {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	capacity := float64(1+savedBursts) * float64(b.burst()) / token
	m := &b.market
	excess := min(m.spent+perRefusal*m.refused-m.earned, m.earned) // an outage must not raise the price for long
	m.total += m.spent
	m.earned, m.spent, m.refused = 0, 0, 0
	price := max(m.price, LeastPrice) * math.Exp(excess/max(capacity, settling))
	m.price = min(max(price, LeastPrice), mostPrice)
	most := b.burst()
	if b.savings.pays() {
		most += savedBursts * b.burst()
	}
	return Market{
		Price: m.price, Calls: m.calls, PerCall: float64(b.perCall) / token, Spent: m.total,
		Capacity: capacity, Tokens: float64(most) / token,
	}
}
