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
	token      = 1_000_000_000 // in nano-tokens

	// A call's share lives for steps-1 to steps steps, including the current step.
	steps = 8
	step  = 250 * time.Millisecond

	// half is half of the longest time for which the bucket remembers slow calls.
	half = 30 * time.Second

	maxLate = time.Minute
)

// Constants, but TestParts takes parts out by setting them.
var (
	// prompt is the longest delay whose second hedge is due while the share of its call lives.
	prompt     = (steps - 1) * step / 2
	maxReserve = int64(10) // tokens
	burstFirst = int64(2)  // 1 / the part of the burst that pays before savings
)

// Bucket holds tokens: see docs/budget.md. Its capacity is the burst: the largest of one token, the
// sum of the shares that live, and that sum at the start of each slow call of the last 30 to 60
// seconds; at most 100,000 tokens.
//
// Times come from one clock, within 290 years of the first. A time up to a minute behind the latest
// counts as the latest. After a time more than a minute behind, the bucket follows the new time,
// and its burst starts over.
//
// All methods are safe for concurrent use, and none allocates. The zero Bucket never pays.
type Bucket struct {
	mu      sync.Mutex
	perCall int64 // earnings of a call
	held    int64 // below 0 if more was taken back than held
	debt    int64 // tokens that Borrow took and earnings have not repaid

	origin time.Time // the first time
	step   int64     // the latest, after the origin
	earned [steps]int64
	recent int64 // the sum of earned

	half int64    // the latest, after the origin
	slow [2]int64 // the largest recent at the start of a slow call, in this half and in the previous one

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

// Earn adds the share of a call that begins at now. The share lives for two seconds. A call is slow
// if its delay is between [prompt] and [half]: its hedges are due after its share has expired, so the
// bucket keeps its capacity for them.
func (b *Bucket) Earn(now time.Time, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.market.calls++
	b.advance(now)
	b.add(b.perCall)
	if delay > prompt && delay < half {
		b.slow[0] = max(b.slow[0], b.recent)
	}
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

// Calls returns the number of calls. It never falls, and does not depend on the share.
func (b *Bucket) Calls() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.market.calls
}

// Forfeit takes the share of a call out of the bucket.
func (b *Bucket) Forfeit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= b.perCall
}

// Pay takes a token for a hedge at now, or returns false and takes nothing. saved reports whether
// savings paid, which Refund needs.
//
// Once half of the burst is spent, savings pay if they can. So while savings wait for a win, the burst
// can still pay for a hedge that may win.
//
// keep is the share of the reserve that must remain, from 0 for the most urgent hedge to 1. The
// reserve is min((K - 1) / 2, maxReserve), with K as [Market].Tokens. A hedge that waits
// for the reserve does not raise the market's price.
func (b *Bucket) Pay(now time.Time, keep float64) (paid, saved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	b.cap()
	if b.takesReserve(keep) {
		return false, false
	}
	first := burstFirst*b.held >= b.burst()
	paid = first && b.payFromBurst()
	saved = !paid && b.savings.pay()
	if paid = paid || saved || !first && b.payFromBurst(); paid {
		b.market.spent++
	} else {
		b.market.refused++
	}
	return paid, saved
}

func (b *Bucket) payFromBurst() bool {
	if b.held < token {
		return false
	}
	b.held -= token
	return true
}

// takesReserve reports whether the bucket could pay for a hedge, but would then hold less than a
// share of the reserve.
func (b *Bucket) takesReserve(share float64) bool {
	tokens, most := b.held, b.burst()
	if b.savings.pays() {
		tokens, most = tokens+b.savings.tokens, most+savedBursts*b.burst()
	}
	reserve := share * float64(min((most-token)/2, maxReserve*token))
	return tokens >= token && tokens-token < int64(reserve)
}

// Borrow takes a token for an attempt without which a call fails, even if the bucket holds none. The
// bucket may owe at most one burst. Half of all earnings repay the debt, or all of them while the
// bucket is full.
func (b *Bucket) Borrow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.perCall == 0 {
		return false
	}
	b.advance(now)
	b.cap()
	debt := b.debt + max(token-b.held, 0)
	if debt > b.burst() {
		return false
	}
	b.held, b.debt = max(b.held-token, 0), debt
	return true
}

// Refund gives back the token of a hedge that was not sent. If the hedge was sent and its server
// turned it away, Refund gives back nine tenths, and a hedge that savings paid for has used up its
// win. saved is the result of Pay.
func (b *Bucket) Refund(saved, sent bool) {
	back := int64(token)
	if sent {
		back -= token / 10
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.market.spent -= float64(back) / token
	if saved {
		b.savings.refund(back, sent)
	} else {
		b.held += back
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
	b.advance(now)
	burst := b.burst()
	over := max(b.held-burst, 0) // is saved when the next step begins, or a hedge is paid
	return Balance{
		Tokens:   float64(max(0, b.held-over)) / token,
		Burst:    float64(burst) / token,
		Saved:    float64(min(b.savings.tokens+over, savedBursts*burst)) / token,
		Capacity: float64(1+savedBursts) * float64(burst) / token,
	}
}

// advance brings the bucket to a time, and drops tokens beyond the burst at that time.
func (b *Bucket) advance(now time.Time) {
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
	if h := n / int64(half/step); h != b.half {
		previous := b.slow[0]
		if h != b.half+1 {
			previous = 0
		}
		b.half, b.slow = h, [2]int64{0, previous}
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
func (b *Bucket) burst() int64 {
	return min(max(token, b.recent, b.slow[0], b.slow[1]), maxBurst*token)
}

// savings are the tokens beyond a bucket's burst. Each win of a hedge lets them pay for one hedge; two
// wins are kept.
type savings struct {
	tokens int64 // nano-tokens
	wins   int   // that no hedge has been paid for
}

// Constants, but TestParts takes parts out by setting them.
var (
	savedBursts = int64(4)
	leastWins   = 1 // that must be kept for savings to pay
)

const maxWins = 2

// pay takes a token, or returns false and takes nothing.
func (s *savings) pay() bool {
	if s.tokens < token || !s.pays() {
		return false
	}
	s.tokens -= token
	s.wins--
	return true
}

// pays reports whether savings pay for a hedge now.
func (s *savings) pays() bool { return s.wins >= leastWins }

func (s *savings) refund(back int64, sent bool) {
	s.tokens += back
	if !sent {
		s.won()
	}
}

// won records that a hedge answered its call, or was not sent.
func (s *savings) won() { s.wins = min(s.wins+1, maxWins) }

// Payers are the budgets that pay for the hedges of a call: the method's own, or nil if no rule gives
// the method a budget, and the target's. Both are nil if hedges cost nothing: such calls must not pay
// for other hedges.
type Payers [2]*Bucket

// Free reports whether hedges cost nothing.
func (p Payers) Free() bool { return p[1] == nil }

// Earn adds the share of a call: see [Bucket.Earn].
func (p Payers) Earn(now time.Time, delay time.Duration) {
	for _, b := range p {
		if b != nil {
			b.Earn(now, delay)
		}
	}
}

// Forfeit takes the share of a call back.
func (p Payers) Forfeit() {
	for _, b := range p {
		if b != nil {
			b.Forfeit()
		}
	}
}

// Pretend takes a token for a hedge that a dry run does not send. Only the method's own budget pays.
func (p Payers) Pretend(now time.Time) bool {
	if p[0] == nil {
		return true
	}
	paid, _ := p[0].Pay(now, 0)
	return paid
}
