// Package budget pays for hedges: a token bucket that a target's own calls fill, so that hedging never adds more than a
// set share of load, at one call a second as at a hundred thousand, without being told the rate.
//
// In any interval, all attempts beyond the first of each call together cost at most the budget's share of what the
// interval's calls cost, plus one burst, plus two hedges, plus one hedge for each hedge that wins. The burst is what about
// two seconds of calls earn, and one hedge at least. A call and each of its hedges cost 1 unless they are given a cost; one
// hedge is then the dearest. The two hedges, and those for wins, come from savings: what went beyond the burst, up to four
// times as much, which pays only while hedges win.
//
// So when every call of a target becomes slow and no hedge wins, the burst and at most two further hedges are spent, and then
// the extra load is back at the set share.
//
//	b := budget.New(10) // 10 hedges per 100 calls
//
//	b.Earn(time.Now()) // a call begins
//	if b.Spend(time.Now(), false) {
//		// it has become slow, and a hedge may be sent
//	}
package budget

import (
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
// the last two seconds earned, though never less than one token nor more than 100,000. A dear call raises it for a while: see
// [Bucket.EarnFor]. What goes beyond is saved, up to four times the burst, and forfeited beyond that. So one token is left two
// seconds after the last call, beside the savings. The two seconds are the running step of 250 ms and the seven before it, so
// in truth between 1.75 and 2 s.
//
// In any interval, what is spent ≤ burst at its start + earned in it, the savings apart: the bucket holds no more than the burst
// at the start, each call that begins in the interval adds its share once, and each spend takes a price that is there. A token
// that is given back counts as not spent. Savings pay for two hedges at most, and one more for each hedge that wins.
//
// Tokens are not stored. They are the difference of two sums: what was earned, and what is gone, spent or forfeited. A call
// adds to the first, and a spend moves the second up, never past the first. What is beyond the burst is
// forfeited no sooner than at a spend, which makes no difference: the least that must be gone is what had been earned two
// seconds before, and that only grows as well. Both sums wrap around; their difference stays small.
//
// Times are passed in and should come from one clock, as those of [time.Now] do. The first one sets the origin, and the
// others count if within 290 years of it. They may come in any order. They only tell which earnings are recent, and one that
// is up to a minute behind the latest is taken for the latest. A time more than a minute behind means that the clock was
// set back, and the bucket goes by the new one.
//
// All methods may be called concurrently. None takes a lock, and none but the first call allocates. The zero Bucket never
// pays.
type Bucket struct {
	rate atomic.Pointer[rate] // nil before a percentage above 0 was set

	origin  atomic.Pointer[time.Time]
	marks   [steps]atomic.Uint64 // of step n at n modulo steps: n<<32 | units before it, both modulo 2³²
	units   atomic.Uint64        // of cost, of all calls so far
	gone    atomic.Int64         // nano-tokens
	dearest dearest

	savings savings
}

// New returns a bucket to which each call adds percent/100 of a token, to the nearest nano-token. Percent is between 0,
// which never pays, and 400; what lies outside counts as the nearer end, and NaN as 0.
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

// SetPercent changes what each call adds, from now on, as New sets it. What the bucket holds stays, and so does its burst for
// two seconds. With 0 percent it still pays until that is spent, for the calls that began before. Calls of SetPercent must not
// overlap.
func (b *Bucket) SetPercent(percent float64) {
	old := b.rate.Load()
	perUnit := uint64(math.Round(share(percent) * token / unitsPerCall))
	switch {
	case old == nil && perUnit == 0, old != nil && old.perUnit == perUnit:
	case old == nil:
		b.rate.Store(&rate{perUnit: perUnit, units: b.units.Load(), earned: uint64(b.gone.Load())})
	default:
		units := b.units.Load()
		former := old.perUnit
		if units == old.units {
			former = old.former
		}
		b.rate.Store(&rate{perUnit: perUnit, former: former, units: units, earned: old.at(units)})
	}
}

// earning returns the rate; nil while calls earn nothing.
func (b *Bucket) earning() *rate {
	if r := b.rate.Load(); r != nil && r.perUnit > 0 {
		return r
	}
	return nil
}

// share brings a percentage into the range that New takes, as a fraction.
func share(percent float64) float64 {
	if !(percent > 0) {
		return 0
	}
	return min(percent, maxPercent) / 100
}

// Earn adds a call's share: a call began at now.
func (b *Bucket) Earn(now time.Time) {
	b.add(now, unitsPerCall)
}

// EarnFor adds the share of a call that costs as much as so many calls: at most [MaxCost] of them. A cost that is not finite, or
// is less than 0, counts as 1. For half a minute at least, and for a minute at most, the bucket can then hold the price of one
// hedge of that cost.
func (b *Bucket) EarnFor(now time.Time, cost float64) {
	units := unitsOf(cost)
	if units > unitsPerCall && b.earning() != nil {
		elapsed := b.elapsed(now)
		if priceOf(cost) > b.dearest.price(elapsed) {
			b.forfeit(now) // what is beyond the burst now is no part of a larger one
		}
		b.dearest.note(elapsed, units)
	}
	b.add(now, units)
}

// MaxCost is the most that one call can cost.
const MaxCost = 10_000

// IsCost reports whether a cost is finite and not less than 0.
func IsCost(cost float64) bool { return cost >= 0 && cost <= math.MaxFloat64 }

// unitsOf returns a cost in units, to the nearest one.
func unitsOf(cost float64) uint64 {
	if !IsCost(cost) {
		return unitsPerCall
	}
	return uint64(math.Round(min(cost, MaxCost) * unitsPerCall))
}

// priceOf returns the price of a hedge in nano-tokens.
func priceOf(cost float64) int64 { return int64(unitsOf(cost)) * (token / unitsPerCall) }

func (b *Bucket) add(now time.Time, units uint64) {
	if b.earning() == nil {
		return
	}
	n := uint32(b.elapsed(now) / step)
	if uint32(b.marks[n%steps].Load()>>32) != n {
		b.begin(n, now)
	}
	b.units.Add(units) // after the mark, so that the step includes this call
}

// TakeBack takes back the share of a call that costs as much as so many calls.
func (b *Bucket) TakeBack(cost float64) {
	if r := b.earning(); r != nil {
		b.gone.Add(int64(unitsOf(cost) * r.perUnit))
	}
}

// Spend takes one token to pay for a hedge at now, or returns false and takes none. Unless urgent, it leaves a reserve: a
// quarter of the burst beyond the first token, and eight tokens at most. So where more hedges are asked for than are
// earned, those for the slowest calls can still be paid. The reserve need not be large, as all that is earned goes to it
// while the others are refused. With a burst under five tokens it is less than a whole one, and helps only at times.
func (b *Bucket) Spend(now time.Time, urgent bool) bool { return b.SpendFor(now, urgent, 1) }

// SpendFor takes the price of a hedge that costs as much as so many calls: see [Bucket.EarnFor].
func (b *Bucket) SpendFor(now time.Time, urgent bool, cost float64) bool {
	r := b.rate.Load()
	if r == nil {
		return false
	}
	earned, burst := b.earnings(r, now)
	price := priceOf(cost)
	needed := price
	if !urgent {
		needed += min((burst-b.dearest.price(b.elapsed(now)))/4, maxReserve*token)
	}
	for {
		gone := b.gone.Load()
		held := min(earned-gone, burst)
		if held < needed {
			return false
		}
		if b.gone.CompareAndSwap(gone, earned-held+price) {
			if over := earned - gone - held; over > 0 {
				b.savings.add(over, burst)
			}
			return true
		}
	}
}

// Refund gives back the price of a hedge of that cost that was paid for and then not sent: saved says that it was paid by
// SpendSaved.
func (b *Bucket) Refund(saved bool, cost float64) {
	if saved {
		b.savings.refund(priceOf(cost))
	} else {
		b.gone.Add(-priceOf(cost))
	}
}

// Tokens returns how many tokens the bucket holds, fractions included, between 0 and the burst; 0 while calls add nothing.
func (b *Bucket) Tokens(now time.Time) float64 {
	r := b.earning()
	if r == nil {
		return 0
	}
	earned, burst := b.earnings(r, now)
	return float64(max(0, min(earned-b.gone.Load(), burst))) / token
}

// Burst returns how many tokens the bucket can hold, between 1 and 100,000; 0 while calls add nothing.
func (b *Bucket) Burst(now time.Time) float64 {
	r := b.earning()
	if r == nil {
		return 0
	}
	_, burst := b.earnings(r, now)
	return float64(burst) / token
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
		n += late(n, marks[i])
	}
	var recent int32 // units since the earliest step that is not too old
	for _, mark := range marks {
		if age := n - uint32(mark>>32); age < steps {
			recent = max(recent, int32(uint32(units)-uint32(mark)))
		}
	}
	return int64(r.at(units)), min(max(b.dearest.price(elapsed), int64(r.last(uint64(recent), units))), maxBurst*token)
}

// late returns by how many steps the n-th is behind that of a mark: 0 if it is not behind, or so far that the clock must
// have been set back.
func late(n uint32, mark uint64) uint32 {
	if behind := uint32(mark>>32) - n; behind <= uint32(maxLate/step) {
		return behind
	}
	return 0
}

// begin marks how many calls came before the n-th step, unless the mark of a later one has taken the place. One from yet
// later may be of a clock that ran ahead, and is replaced.
func (b *Bucket) begin(n uint32, now time.Time) {
	mark := &b.marks[n%steps]
	old := mark.Load()
	if uint32(old>>32) == n+steps {
		return
	}
	if mark.CompareAndSwap(old, uint64(n)<<32|uint64(uint32(b.units.Load()))) {
		b.forfeit(now)
	}
}

// forfeit saves what is beyond the burst. A spend sees to that itself; without any, the difference of the two sums would
// overflow one day, and a client that comes back from a pause would find what it had saved at its former rate.
func (b *Bucket) forfeit(now time.Time) {
	r := b.earning()
	if r == nil { // only now
		return
	}
	earned, burst := b.earnings(r, now)
	for {
		gone := b.gone.Load()
		over := max(0, earned-gone-burst)
		if over == 0 || b.gone.CompareAndSwap(gone, gone+over) {
			b.savings.add(over, burst)
			return
		}
	}
}

// elapsed returns the time from the origin to now.
func (b *Bucket) elapsed(now time.Time) time.Duration {
	origin := b.origin.Load()
	if origin == nil {
		origin = b.start(now)
	}
	return now.Sub(*origin)
}

func (b *Bucket) start(now time.Time) *time.Time {
	b.origin.CompareAndSwap(nil, &now)
	return b.origin.Load()
}
