// Package budget pays for hedges: a token bucket that a target's own calls fill, so that hedging never adds more than a
// set share of load, at one call a second as at a hundred thousand, without being told the rate.
//
// In any interval, all attempts beyond the first of each call together cost at most the budget's share of what the
// interval's calls cost, plus one burst, plus two hedges, plus one hedge for each hedge that wins. The burst is what about
// two seconds of calls earn, and one hedge at least. If calls have different costs, "one hedge" is the costliest. The two
// hedges, and those for wins, come from savings: what went beyond the burst, up to four times as much. Savings pay only
// while hedges win. So if every call of a target becomes slow and no hedge wins, the extra load is soon back at the set
// share.
package budget

import (
	"time"

	inner "github.com/grpchedge/hedge/internal/budget"
)

// Bucket holds tokens. Each token pays for one hedge. Times are passed in and should come from one clock, such as [time.Now].
// All methods may be called concurrently, and none allocates. Make a bucket with [New].
type Bucket struct{ in *inner.Bucket }

// New returns a bucket with one token, to which each call adds percent/100 of a token: 0, which never pays, to 400. A percentage
// outside counts as the nearer end, and NaN as 0.
func New(percent float64) *Bucket { return &Bucket{inner.New(percent)} }

// Earn adds the share of a call that begins at now. cost is the call's cost, in calls: 0 to 10,000; more counts as 10,000. A
// cost that is not finite, or is less than 0, counts as 1.
func (b *Bucket) Earn(now time.Time, cost float64) { b.in.Earn(now, cost) }

// Pay takes the price of a hedge at now, or returns false and takes none. cost is its call's cost, in calls. Unless the hedge is
// urgent, the burst keeps a reserve: a quarter of it beyond the first token, and eight tokens at most.
func (b *Bucket) Pay(now time.Time, urgent bool, cost float64) bool {
	paid, _ := b.in.Pay(now, urgent, cost)
	return paid
}

// Hedged says that a hedged call has ended, and whether a hedge answered it. Savings pay while that is so for more than a
// third of hedged calls: for two hedges, and one more for each call that a hedge answers.
func (b *Bucket) Hedged(won bool) { b.in.Hedged(won) }

// Tokens returns how many hedges the bucket pays for at now, fractions included, without its savings.
func (b *Bucket) Tokens(now time.Time) float64 { return b.in.Balance(now).Tokens }
