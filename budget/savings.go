package budget

import "sync/atomic"

// savings are what went beyond a bucket's burst. They are for late calls that come when the burst is spent: the few that a
// client of one call a second has by chance, and the many of a fast one when a backend stands still.
//
// They pay only while hedges win, which is judged in two ways:
//   - A score between 0 and 6 goes up by two when a hedge answers a hedged call, and down by one when none does. Savings pay
//     from 4 on: while more than a third of hedged calls are answered by a hedge. Three that are not stop them.
//   - A hedge that savings paid for is unproven until a hedge wins. At most two are, and each win proves one.
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

// pay takes a price, or returns false and takes nothing.
func (s *savings) pay(price, burst int64) bool {
	if s.tokens.Load() < price || !s.venture() {
		return false
	}
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
