// Package budget implements the token bucket that pays for hedges. The public package budget wraps
// it and documents the bound.
package budget

import (
	"math"
	"sync"
	"time"
)

const (
	// maxBurst is the most tokens that a bucket holds: two seconds of earnings at 500,000 calls per
	// second and 10 percent.
	maxBurst = 100_000

	maxPercent = 400
	token      = 1_000_000_000 // tokens are counted in nano-tokens

	// A call's share lives for steps-1 to steps steps, including the current step.
	steps = 8
	step  = 250 * time.Millisecond

	// The costliest call counts until the end of the slot of costMemory that follows its own. At 10 percent, a
	// target with a costly call each six seconds earns the price of one such call in a minute.
	costMemory = 30 * time.Second

	maxLate = time.Minute
)

// These are constants too, but 0 takes a part out, as TestParts does.
var (
	maxReserve = int64(10) // tokens
	burstFirst = int64(2)  // 1 / the part of the burst that pays before savings
)

// Bucket holds tokens: see docs/budget.md. Its capacity is the burst: the sum of the shares that
// live, at most 100,000 tokens, and at least the price of one hedge of the costliest call of the
// last 30 to 60 seconds.
//
// Times come from one clock, within 290 years of the first. A time up to a minute behind the latest
// counts as the latest. After a time more than a minute behind, the bucket follows the new time,
// and its burst starts over.
//
// All methods are safe for concurrent use, and none allocates. The zero Bucket pays only for hedges
// that cost nothing.
type Bucket struct {
	mu      sync.Mutex
	perCall int64   // earnings of a call of cost 1
	calls   float64 // total cost of all calls so far
	held    int64   // below 0 if more was taken back than held
	debt    int64   // tokens that Borrow took and earnings have not repaid

	origin time.Time // the first time
	step   int64     // the latest, after the origin
	earned [steps]int64
	recent int64 // the sum of earned

	costSlot  int64    // the latest, after the origin
	costliest [2]int64 // the price of the costliest call of that slot, and of the slot before

	savings savings
	market  market
}

// New returns a bucket to which each call adds percent/100 of a token, to the nearest nano-token.
// Percent is between 0, which never pays, and 400. A percentage out of range is clamped, and NaN
// counts as 0.
func New(percent float64) *Bucket {
	b := &Bucket{}
	b.SetPercent(percent)
	if b.perCall > 0 {
		b.held = token
	}
	return b
}

// SetPercent changes the share that each call earns from now on, as in New. The tokens stay, and
// shares that were earned before live as long as before. With 0 percent the bucket still pays out
// its tokens.
func (b *Bucket) SetPercent(percent float64) {
	if !(percent > 0) {
		percent = 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.perCall = int64(math.Round(min(percent, maxPercent) / 100 * token))
}

// Earn adds the share of a call that begins at now. cost is the call's cost, in calls: at most
// [MaxCost]. A cost that is not finite, or is less than 0, counts as 1.
//
// The share lives for two seconds. For half a minute at least, and for a minute at most, the bucket
// can hold the price of one hedge of that cost.
func (b *Bucket) Earn(now time.Time, cost float64) {
	cost = counted(cost)
	price := priceOf(cost)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls += cost
	b.market.calls++
	b.settle(now)
	if price > b.minBurst() {
		b.cap() // tokens beyond the current burst are no part of a larger one
	}
	b.costliest[0] = max(b.costliest[0], price)
	b.add(b.share(cost))
}

// add adds a share to the bucket, or repays debt with it. b.mu must be held.
func (b *Bucket) add(share int64) {
	slot := &b.earned[b.step&(steps-1)]
	added := min(share, maxBurst*token-*slot) // so that no sum overflows
	b.market.earned += float64(added) / token
	*slot += added
	b.recent += added
	repaid := min(b.debt, added)
	if b.held < b.burst() { // half: a debt of busy times would use up all earnings of quiet times
		repaid = min(b.debt, added/2)
	}
	b.debt -= repaid
	b.held += added - repaid
}

// share returns the earnings of a call of the given cost. It is rounded down, and the price up, so
// that no cost is too small to count.
func (b *Bucket) share(cost float64) int64 { return int64(cost * float64(b.perCall)) }

// Calls returns the total cost of all calls so far, in calls of cost 1. It never falls, and does
// not depend on the share.
func (b *Bucket) Calls() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// MaxCost is the most that one call can cost.
const MaxCost = 10_000

// IsCost reports whether a cost is finite and not less than 0.
func IsCost(cost float64) bool { return cost >= 0 && cost <= math.MaxFloat64 }

// counted returns the cost that is counted for a call of the given cost.
func counted(cost float64) float64 {
	if !IsCost(cost) {
		return 1
	}
	return min(cost, MaxCost)
}

// priceOf returns the price of a hedge of a call of the given cost, in nano-tokens.
func priceOf(cost float64) int64 { return int64(math.Ceil(counted(cost) * token)) }

// Forfeit takes the share of a call of that cost out of the bucket.
func (b *Bucket) Forfeit(cost float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= b.share(counted(cost))
}

// Pay takes the price of a hedge at now, or returns false and takes nothing. cost is the cost of
// its call, in calls. saved reports whether savings paid, which Refund needs.
//
// Once half of the burst is spent, savings pay if they can. So while savings wait for a win, the burst
// can still pay for a hedge that may win.
//
// keep is the share of the reserve that must remain, from 0 for the most urgent hedge to 1. The
// reserve is half of the most that the bucket can hold beyond one hedge, up to 10 tokens, with its
// savings while these pay. A hedge that waits for the reserve does not raise the price.
func (b *Bucket) Pay(now time.Time, keep, cost float64) (paid, saved bool) {
	price := priceOf(cost)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(now)
	b.cap()
	if b.takesReserve(price, keep) {
		return false, false
	}
	first := burstFirst*b.held >= b.burst()
	paid = first && b.payFromBurst(price)
	saved = !paid && b.savings.pay(price)
	if paid = paid || saved || !first && b.payFromBurst(price); paid {
		b.market.spent += float64(price) / token
	} else {
		b.market.refused += float64(price) / token
	}
	return paid, saved
}

func (b *Bucket) payFromBurst(price int64) bool {
	if b.held < price {
		return false
	}
	b.held -= price
	return true
}

// takesReserve reports whether the bucket could pay a price, but would then hold less than a share
// of the reserve.
func (b *Bucket) takesReserve(price int64, share float64) bool {
	tokens, most := b.held, b.burst()
	if b.savings.pays() {
		tokens, most = tokens+b.savings.tokens, most+savedBursts*b.burst()
	}
	reserve := share * float64(min((most-b.minBurst())/2, maxReserve*token))
	return price > 0 && tokens >= price && tokens-price < int64(reserve)
}

// Borrow takes the price of an attempt without which a call fails, even if the bucket does not hold
// it. The bucket may owe at most one burst. Half of all earnings repay the debt, or all of them
// while the bucket is full.
func (b *Bucket) Borrow(now time.Time, cost float64) bool {
	price := priceOf(cost)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.perCall == 0 {
		return false
	}
	b.settle(now)
	b.cap()
	debt := b.debt + max(price-b.held, 0)
	if debt > b.burst() {
		return false
	}
	b.held, b.debt = max(b.held-price, 0), debt
	return true
}

// Refund gives back the price of a hedge that was paid for and not sent. If it was sent and its
// server turned it away, Refund gives back nine tenths, and a hedge that savings paid for remains
// without a win. saved is what Pay returned.
func (b *Bucket) Refund(saved, sent bool, cost float64) {
	price := priceOf(cost)
	if sent {
		price -= priceOf(counted(cost) / 10)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.market.spent -= float64(price) / token
	if saved {
		b.savings.refund(price, sent)
	} else {
		b.held += price
	}
}

// Hedged records the end of a hedged call, and whether a hedge answered it. Savings pay for one
// hedge for each answer of a hedge; two answers are kept.
func (b *Bucket) Hedged(won bool) {
	if won {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.savings.won()
	}
}

// Balance is the contents of a bucket, in tokens, including fractions.
type Balance struct {
	Tokens   float64 // between 0 and Burst
	Burst    float64 // the most tokens that the bucket can hold, 100,000 at most
	Saved    float64 // between 0 and four times Burst
	Capacity float64 // the most that the bucket and its savings can hold: five times Burst
}

// Balance returns the contents of the bucket; zero while calls earn nothing.
func (b *Bucket) Balance(now time.Time) Balance {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.perCall == 0 {
		return Balance{}
	}
	b.settle(now)
	burst := b.burst()
	over := max(b.held-burst, 0) // is saved when the next step begins, or a hedge is paid
	return Balance{
		Tokens:   float64(max(0, b.held-over)) / token,
		Burst:    float64(burst) / token,
		Saved:    float64(min(b.savings.tokens+over, savedBursts*burst)) / token,
		Capacity: float64(1+savedBursts) * float64(burst) / token,
	}
}

// settle advances the bucket to a time, and drops tokens beyond the burst at that time.
func (b *Bucket) settle(now time.Time) {
	if b.origin.IsZero() {
		b.origin = now
	}
	n := int64(now.Sub(b.origin) / step)
	if late := b.step - n; late >= 0 && late <= int64(maxLate/step) {
		return
	}
	passed := min(n-b.step, steps)
	if passed < 0 {
		passed = steps
	}
	for i := range passed {
		slot := &b.earned[(b.step+1+i)&(steps-1)]
		b.recent -= *slot
		*slot = 0
	}
	b.step = n
	if h := n / int64(costMemory/step); h != b.costSlot {
		if h != b.costSlot+1 {
			b.costliest[0] = 0
		}
		b.costSlot, b.costliest = h, [2]int64{0, b.costliest[0]}
	}
	b.cap()
}

// cap moves tokens beyond the burst to the savings.
func (b *Bucket) cap() {
	burst := b.burst()
	if over := b.held - burst; over > 0 {
		b.held = burst
		b.savings.tokens += over
	}
	b.savings.tokens = min(b.savings.tokens, savedBursts*burst)
}

// burst is how much the bucket can hold.
func (b *Bucket) burst() int64 { return min(max(b.minBurst(), b.recent), maxBurst*token) }

// minBurst is the smallest burst: the price of the costliest recent call, or one token if no call
// had a cost.
func (b *Bucket) minBurst() int64 {
	if price := max(b.costliest[0], b.costliest[1]); price > 0 {
		return price
	}
	return token
}

// savings are the tokens beyond a bucket's burst. They pay while hedges win: for one hedge for each
// win, of which two may be outstanding.
type savings struct {
	tokens int64 // nano-tokens
	wins   int   // that no hedge has been paid for
}

// These are constants too, but each takes a part out at some value, as TestParts does.
var (
	savedBursts = int64(4)
	leastWins   = 1 // that must be outstanding
)

const maxWins = 2

// pay takes a price, or returns false and takes nothing.
func (s *savings) pay(price int64) bool {
	if s.tokens < price || !s.pays() {
		return false
	}
	s.tokens -= price
	s.wins--
	return true
}

// pays reports whether savings pay for a hedge now.
func (s *savings) pays() bool { return s.wins >= leastWins }

func (s *savings) refund(price int64, sent bool) {
	s.tokens += price
	if !sent {
		s.won()
	}
}

// won records that a hedge answered its call, or was not sent.
func (s *savings) won() { s.wins = min(s.wins+1, maxWins) }
