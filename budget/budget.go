// Package budget pays for hedges from a token bucket that a target's own calls fill. Hedges thus
// stay a fixed share of the calls, at one call per second or a hundred thousand, without a
// configured rate.
//
// In every interval:
//
//	extra attempts <= budget * calls + burst + 2 + hedge wins
//
// The burst is two seconds of earnings, at least one hedge. The last two terms are paid from
// savings: the earnings beyond the burst, up to four times as much. Savings pay only while hedges
// win: if every call becomes slow and no hedge wins, the extra load soon returns to the budget.
package budget

import (
	"time"

	inner "github.com/grpchedge/hedge/internal/budget"
)

// Bucket holds tokens; each token pays for one hedge. Make one with [New]. Times are arguments and
// should come from one clock, such as [time.Now]. All methods may be called concurrently, and none
// allocates.
type Bucket struct{ in *inner.Bucket }

// New returns a bucket with one token, to which each call adds percent/100 of a token: 0, which
// never pays, to 400. A percentage out of range is clamped, and NaN counts as 0.
func New(percent float64) *Bucket { return &Bucket{inner.New(percent)} }

// Earn adds the share of a call that begins at now. The share expires after two seconds.
func (b *Bucket) Earn(now time.Time) { b.in.Earn(now, 0) }

// Pay takes a token for a hedge at now, and reports whether the bucket held it. A hedge that is not
// urgent must leave a reserve: a quarter of the most that the bucket can hold beyond one hedge, at
// most five tokens; savings count while they pay.
func (b *Bucket) Pay(now time.Time, urgent bool) bool {
	keep := 0.0
	if !urgent {
		keep = 0.5
	}
	paid, _ := b.in.Pay(now, keep)
	return paid
}

// Hedged records that a hedged call has ended, and whether a hedge answered it. For each call that
// a hedge answers, savings pay for one hedge. At most two such answers are kept.
func (b *Bucket) Hedged(won bool) { b.in.Hedged(won) }

// Tokens returns the number of hedges that the bucket pays for at now, with fractions and without
// savings.
func (b *Bucket) Tokens(now time.Time) float64 { return b.in.Balance(now).Tokens }
