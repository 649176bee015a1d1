// Package budget pays for hedges: a token bucket that a target's own calls fill, so that hedging never adds more than a
// set share of load, at one call a second as at a hundred thousand, without being told the rate.
//
// In any interval, all attempts beyond the first of each call together cost at most the budget's share of what the
// interval's calls cost, plus one burst, plus two hedges, plus one hedge for each hedge that wins. The burst is what about
// two seconds of calls earn, and one hedge at least. If calls have different costs, "one hedge" is the costliest. The two
// hedges, and those for wins, come from savings: what went beyond the burst, up to four times as much. Savings pay only
// while hedges win. So if every call of a target becomes slow and no hedge wins, the extra load is soon back at the set
// share.
//
//	b := budget.New(10) // 10 hedges per 100 calls
//
//	b.Earn(time.Now(), 1) // a call begins
//	if paid, _ := b.Pay(time.Now(), false, 1); paid {
//		// it has become slow, and a hedge may be sent
//	}
package budget

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
)

const (
	// maxBurst is the most tokens that a bucket holds: what two seconds of 500,000 calls a second earn at 10 percent.
	maxBurst = 100_000

	maxPercent = 400
	token      = 1_000_000_000 // what calls earn is counted in nano-tokens

	// The burst is what the last steps earned, the running one among them.
	steps = 8
	step  = 250 * time.Millisecond

	maxReserve = 8 // tokens
	maxLate    = time.Minute
)

// Bucket holds tokens, each of which pays for one hedge.
//
// A bucket starts with one token and gains a share of one with every call. It holds at most its burst: what the calls of
// the last 1.75 to 2 seconds earned, between 1 and 100,000 tokens. A costly call raises the burst for a while: see
// [Bucket.Earn]. Tokens beyond the burst are saved, up to four times the burst. The rest is forfeited.
//
// Tokens are not stored. They are the difference of two sums: what was earned, and what is gone, paid or forfeited. A call
// adds to the first, and a payment moves the second up, never past the first. Tokens beyond the burst are forfeited no
// sooner than at a payment. This makes no difference: the least that must be gone is what had been earned two seconds
// before, and that only grows as well. Both sums wrap around; their difference stays small.
//
// Times are passed in and should come from one clock, as those of [time.Now] do, within 290 years of the first. They may
// come in any order. They only tell which earnings are recent, and a time up to a minute behind the latest counts as the
// latest. A time more than a minute behind means that the clock was set back, and the bucket goes by the new one.
//
// All methods but SetPercent may be called concurrently. None takes a lock, and only the first call allocates. The zero
// Bucket never pays.
type Bucket struct {
	rate atomic.Pointer[rate] // nil before a percentage above 0 was set

	origin    atomic.Pointer[time.Time]
	marks     [steps]atomic.Uint64 // of step n at n modulo steps: n<<32 | units before it, both modulo 2³²
	units     atomic.Uint64        // of cost, of all calls so far
	gone      atomic.Int64         // nano-tokens
	costliest costliest

	savings savings
}

// New returns a bucket to which each call adds percent/100 of a token, to the nearest nano-token. Percent is between 0,
// which never pays, and 400. A percentage outside counts as the nearer end, and NaN as 0.
func New(percent float64) *Bucket {
	b := &Bucket{}
	b.SetPercent(percent)
	if b.rate.Load() != nil {
		b.gone.Store(-token)
	}
	return b
}

// rate is what calls earn, since the units that there were when it was set: nothing at 0 percent.
type rate struct {
	perUnit uint64 // nano-tokens
	former  uint64 // what the calls before earned
	units   uint64
	earned  uint64 // before, in nano-tokens
}

// A call of cost 1 is so many units.
const unitsPerCall = 16

// at returns what was earned until there were so many units.
func (r *rate) at(units uint64) uint64 { return r.earned + (units-r.units)*r.perUnit }

// last returns about what the last of so many units earned.
func (r *rate) last(recent, units uint64) uint64 {
	since := min(recent, units-r.units)
	return since*r.perUnit + (recent-since)*r.former
}

// SetPercent changes what each call adds, from now on, as New sets it. Its tokens stay, and so does its burst for two
// seconds. With 0 percent it still pays what it holds. Calls of SetPercent must not overlap.
func (b *Bucket) SetPercent(percent float64) {
	if !(percent > 0) {
		percent = 0
	}
	old, units := cmp.Or(b.rate.Load(), &rate{}), b.units.Load()
	perUnit := uint64(math.Round(min(percent, maxPercent) / 100 * token / unitsPerCall))
	if perUnit == old.perUnit {
		return
	}
	former := old.perUnit
	if units == old.units {
		former = old.former
	}
	b.rate.Store(&rate{perUnit: perUnit, former: former, units: units, earned: old.at(units)})
}

// earning returns the rate; nil while calls earn nothing.
func (b *Bucket) earning() *rate {
	if r := b.rate.Load(); r != nil && r.perUnit > 0 {
		return r
	}
	return nil
}

// Earn adds the share of a call that begins at now and costs as much as so many calls: at most [MaxCost]. A cost that is
// not finite, or is less than 0, counts as 1. For half a minute at least, and for a minute at most, the bucket can then hold
// the price of one hedge of that cost.
func (b *Bucket) Earn(now time.Time, cost float64) {
	r := b.earning()
	if r == nil {
		return
	}
	units := uint64(unitsPerCall)
	if cost != 1 {
		units = unitsOf(cost)
	}
	elapsed := b.elapsed(now)
	if units > unitsPerCall {
		if priceOf(units) > b.costliest.price(elapsed) {
			b.forfeit(r, now) // what is beyond the burst now is no part of a larger one
		}
		b.costliest.note(elapsed, units)
	}
	n := uint32(elapsed / step)
	mark := &b.marks[n%steps]
	old := mark.Load()
	// Unless the step that follows in this place has its mark there already. One from yet later may be of a clock that ran ahead.
	if of := uint32(old >> 32); of != n && of != n+steps &&
		mark.CompareAndSwap(old, uint64(n)<<32|uint64(uint32(b.units.Load()))) {
		b.forfeit(r, now)
	}
	b.units.Add(units) // after the mark, so that the step includes this call
}

const (
	// expected is how many tokens a bucket begins with at most, whatever traffic is expected.
	expected = 8
	// expectedCalls bounds the calls that it takes, where a call earns next to nothing.
	expectedCalls = 10_000
)

// Expect makes the bucket begin with the tokens that so many calls a second earn in two seconds, eight at most. It comes
// before the first call. A rate that is not above 0 is ignored.
func (b *Bucket) Expect(now time.Time, perSecond float64) {
	r := b.earning()
	if r == nil || !(perSecond > 0) {
		return
	}
	const before = (steps - 1) * step // so that all of the calls still count at now
	calls := int(min(2*perSecond, expectedCalls, math.Ceil(expected*token/float64(r.perUnit*unitsPerCall))))
	for n := range calls {
		b.Earn(now.Add(-before+time.Duration(n)*before/time.Duration(calls)), 1)
	}
}

// Calls returns what all calls so far cost, in calls of cost 1. It never falls, and does not depend on the share.
func (b *Bucket) Calls() float64 { return float64(b.units.Load()) / unitsPerCall }

// MaxCost is the most that one call can cost.
const MaxCost = 10_000

// IsCost reports whether a cost is finite and not less than 0.
func IsCost(cost float64) bool { return cost >= 0 && cost <= math.MaxFloat64 }

func unitsOf(cost float64) uint64 {
	if !IsCost(cost) {
		return unitsPerCall
	}
	return uint64(math.Round(min(cost, MaxCost) * unitsPerCall))
}

// priceOf returns the price of a hedge of so many units, in nano-tokens.
func priceOf(units uint64) int64 { return int64(units) * (token / unitsPerCall) }

// TakeBack takes back the share of a call of that cost.
func (b *Bucket) TakeBack(cost float64) {
	if r := b.earning(); r != nil {
		b.gone.Add(int64(unitsOf(cost) * r.perUnit))
	}
}

// Pay takes the price of a hedge at now that costs as much as so many calls, or returns false and takes none. It says
// whether the savings paid, which Refund needs to know.
//
// The burst pays until half of it is spent. From then on savings pay if they can, and the rest of the burst if they cannot.
// So when savings wait for a win, something is left that can bring one. If one backend of three stalls, a third of the
// hedges go there as well, and two of these are enough to stop the savings.
//
// Unless the hedge is urgent, the burst keeps a reserve: a quarter of it beyond the first token, and eight tokens at most.
// So where more hedges are asked for than are earned, those for the slowest calls can still be paid. The reserve need not be
// large, because it gets all that is earned while other hedges are refused. Under five tokens it is less than a whole one,
// and helps only at times.
func (b *Bucket) Pay(now time.Time, urgent bool, cost float64) (paid, saved bool) {
	r := b.rate.Load()
	if r == nil {
		return false, false
	}
	price := priceOf(unitsOf(cost))
	earned, burst := b.earnings(r, now)
	savingsFirst := 2*(earned-b.gone.Load()) < burst
	if savingsFirst && b.savings.pay(price, burst) {
		return true, true
	}
	if b.payFromBurst(b.elapsed(now), urgent, price, earned, burst) {
		return true, false
	}
	saved = !savingsFirst && b.savings.pay(price, burst)
	return saved, saved
}

func (b *Bucket) payFromBurst(elapsed time.Duration, urgent bool, price, earned, burst int64) bool {
	needed := price
	if !urgent {
		needed += min((burst-b.costliest.price(elapsed))/4, maxReserve*token)
	}
	over := int64(0)
	paid := update(&b.gone, func(gone int64) (int64, bool) {
		held := min(earned-gone, burst)
		over = earned - gone - held
		return earned - held + price, held >= needed
	})
	if paid && over > 0 {
		b.savings.add(over, burst)
	}
	return paid
}

// Refund gives back the price of a hedge that was paid for and then not sent. saved is what Pay returned.
func (b *Bucket) Refund(saved bool, cost float64) {
	price := priceOf(unitsOf(cost))
	if saved {
		b.savings.tokens.Add(price)
		b.savings.prove()
	} else {
		b.gone.Add(-price)
	}
}

// Hedged says that a hedged call has ended, and whether a hedge answered it. Savings pay while that is so for more than a
// third of hedged calls: for two hedges, and one more for each call that a hedge answers.
func (b *Bucket) Hedged(won bool) {
	if b.rate.Load() != nil {
		b.savings.hedged(won)
	}
}

// Balance is what a bucket holds, in tokens, fractions included.
type Balance struct {
	Tokens   float64 // between 0 and Burst
	Burst    float64 // the most tokens that the bucket can hold, between 1 and 100,000
	Saved    float64 // between 0 and four times Burst
	Capacity float64 // the most that the bucket and its savings can hold: five times Burst
}

// Balance returns what the bucket holds; nothing while calls earn nothing.
func (b *Bucket) Balance(now time.Time) Balance {
	r := b.earning()
	if r == nil {
		return Balance{}
	}
	earned, burst := b.earnings(r, now)
	held := earned - b.gone.Load()
	saved := min(b.savings.tokens.Load()+max(0, held-burst), savedBursts*burst) // what is over is saved at the next call
	return Balance{
		Tokens:   float64(max(0, min(held, burst))) / token,
		Burst:    float64(burst) / token,
		Saved:    float64(saved) / token,
		Capacity: (1 + savedBursts) * float64(burst) / token,
	}
}

// earnings returns the sum of what was earned until now, and how much of it the bucket can hold. The rate is read before: one
// that is replaced meanwhile counts a few calls at its own share.
func (b *Bucket) earnings(r *rate, now time.Time) (earned, burst int64) {
	elapsed := b.elapsed(now)
	units := b.units.Load()
	var marks [steps]uint64
	n := uint32(elapsed / step)
	for i := range marks {
		marks[i] = b.marks[i].Load()
		if behind := uint32(marks[i]>>32) - n; behind <= uint32(maxLate/step) { // else the clock must have been set back
			n += behind
		}
	}
	var recent int32 // units since the earliest step that is not too old
	for _, mark := range marks {
		if age := n - uint32(mark>>32); age < steps {
			recent = max(recent, int32(uint32(units)-uint32(mark)))
		}
	}
	return int64(r.at(units)), min(max(b.costliest.price(elapsed), int64(r.last(uint64(recent), units))), maxBurst*token)
}

// forfeit saves what is beyond the burst. A payment does that too. Without any, the difference of the two sums would
// overflow one day, and a client that comes back from a pause would find what it had saved at its former rate.
func (b *Bucket) forfeit(r *rate, now time.Time) {
	earned, burst := b.earnings(r, now)
	b.payFromBurst(b.elapsed(now), true, 0, earned, burst)
	b.savings.add(0, burst) // which lets go of what is too much
}

func (b *Bucket) elapsed(now time.Time) time.Duration {
	origin := b.origin.Load()
	if origin == nil {
		first := now
		b.origin.CompareAndSwap(nil, &first)
		origin = b.origin.Load()
	}
	return now.Sub(*origin)
}
