package budget

import (
	"sync/atomic"
	"time"
)

// savings are what went beyond a bucket's burst. They are for late calls that come when the burst is spent: the few that a
// client of one call a second has by chance, and the many of a fast one when a backend stands still.
//
// They pay only while hedges win. That is judged in two ways:
//   - A score between 0 and 6 goes up by two when a hedge answers a hedged call, and down by one when none does. From 4 on
//     savings pay. So they do while more than a third of hedged calls are answered by a hedge, and after three at most that
//     are not they no longer do.
//   - Until it has won, what savings paid for is unproven, and at most two hedges are. Each win proves one of them.
type savings struct {
	tokens atomic.Int64  // in units of the bucket
	trust  atomic.Uint64 // unproven<<32 | score
}

const (
	savedBursts = 4

	maxScore    = 6
	payingScore = 4
	winScore    = 2
	lossScore   = 1

	maxUnproven = 2
	unproven    = 1 << 32
)

// Pay takes the price of a hedge at now that costs as much as so many calls, as SpendFor or SpendSavedFor do, or returns false
// and takes none. It says whether the savings paid, which Refund needs to know.
//
// The burst pays until half of it is spent. From then on savings pay as long as they do, and the rest of the burst when they do
// not. So when savings wait for a win, something is left that can bring one: where one backend of three stalls, a third of the
// hedges go there as well, and two of these are enough for savings to wait.
func (b *Bucket) Pay(now time.Time, urgent bool, cost float64) (paid, saved bool) {
	savingsFirst := b.halfSpent(now)
	if savingsFirst && b.SpendSavedFor(now, cost) {
		return true, true
	}
	if b.SpendFor(now, urgent, cost) {
		return true, false
	}
	saved = !savingsFirst && b.SpendSavedFor(now, cost)
	return saved, saved
}

// halfSpent reports whether less than half of the burst is left.
func (b *Bucket) halfSpent(now time.Time) bool {
	r := b.rate.Load()
	if r == nil {
		return false
	}
	earned, burst := b.earnings(r, now)
	return 2*(earned-b.gone.Load()) < burst
}

// SpendSaved takes one token from the savings to pay for a hedge at now, or returns false and takes none. It refuses
// unless hedges win: see [Bucket.Hedged]. [Bucket.Pay] says when it is to be asked.
func (b *Bucket) SpendSaved(now time.Time) bool { return b.SpendSavedFor(now, 1) }

// SpendSavedFor takes the price of a hedge that costs as much as so many calls.
func (b *Bucket) SpendSavedFor(now time.Time, cost float64) bool {
	r, s, price := b.rate.Load(), &b.savings, priceOf(cost)
	if r == nil || s.tokens.Load() < price || !s.venture() {
		return false
	}
	_, burst := b.earnings(r, now)
	for {
		saved := s.tokens.Load()
		held := min(saved, savedBursts*burst)
		if held < price {
			s.prove()
			return false
		}
		if s.tokens.CompareAndSwap(saved, held-price) {
			return true
		}
	}
}

// Hedged takes note of a hedged call that has ended, and whether a hedge answered it. Savings pay while that is so for more
// than a third of hedged calls: for two hedges, and one more for each call that a hedge answers.
func (b *Bucket) Hedged(won bool) {
	if b.rate.Load() != nil {
		b.savings.hedged(won)
	}
}

// Saved returns how many tokens the savings hold, fractions included, between 0 and four times the burst.
func (b *Bucket) Saved(now time.Time) float64 {
	r := b.earning()
	if r == nil {
		return 0
	}
	earned, burst := b.earnings(r, now)
	over := max(0, earned-b.gone.Load()-burst) // is saved at the next call
	return float64(min(b.savings.tokens.Load()+over, savedBursts*burst)) / token
}

// Capacity returns how many tokens the bucket and its savings can hold, between 5 and 500,000; 0 while calls add nothing.
func (b *Bucket) Capacity(now time.Time) float64 { return (1 + savedBursts) * b.Burst(now) }

// add saves what went beyond a burst, and lets go of what is too much for the burst as it is now.
func (s *savings) add(over, burst int64) {
	for {
		saved := s.tokens.Load()
		next := min(saved+over, savedBursts*burst)
		if next == saved || s.tokens.CompareAndSwap(saved, next) {
			return
		}
	}
}

// venture adds one hedge to those that are unproven, if there may be one more.
func (s *savings) venture() bool {
	for {
		trust := s.trust.Load()
		if uint32(trust) < payingScore || trust >= maxUnproven*unproven {
			return false
		}
		if s.trust.CompareAndSwap(trust, trust+unproven) {
			return true
		}
	}
}

// prove removes one hedge from those that are unproven.
func (s *savings) prove() {
	for {
		trust := s.trust.Load()
		if trust < unproven || s.trust.CompareAndSwap(trust, trust-unproven) {
			return
		}
	}
}

func (s *savings) hedged(won bool) {
	for {
		trust := s.trust.Load()
		score, next := uint64(uint32(trust)), trust
		if won {
			next += min(maxScore-score, winScore)
			if next >= unproven {
				next -= unproven
			}
		} else {
			next -= min(score, lossScore)
		}
		if next == trust || s.trust.CompareAndSwap(trust, next) {
			return
		}
	}
}

func (s *savings) refund(price int64) {
	s.tokens.Add(price)
	s.prove()
}
