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
	tokens atomic.Int64 // nano-tokens
	trust  atomic.Int64 // unproven<<32 | score
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
	paid := update(&s.tokens, func(saved int64) (int64, bool) {
		held := min(saved, savedBursts*burst)
		return held - price, held >= price
	})
	if !paid {
		s.prove()
	}
	return paid
}

// add saves what went beyond a burst, and lets go of what is too much for the burst as it is now.
func (s *savings) add(over, burst int64) {
	update(&s.tokens, func(saved int64) (int64, bool) { return min(saved+over, savedBursts*burst), true })
}

// venture adds one hedge to those that are unproven, if there may be one more.
func (s *savings) venture() bool {
	return update(&s.trust, func(trust int64) (int64, bool) {
		return trust + unproven, trust%unproven >= payingScore && trust < maxUnproven*unproven
	})
}

func (s *savings) prove() {
	update(&s.trust, func(trust int64) (int64, bool) { return trust - unproven, trust >= unproven })
}

func (s *savings) hedged(won bool) {
	update(&s.trust, func(trust int64) (int64, bool) {
		score := trust % unproven
		if !won {
			return trust - min(score, lossScore), true
		}
		if trust >= unproven {
			trust -= unproven
		}
		return trust + min(maxScore-score, winScore), true
	})
}

// update replaces a value by the next one, unless next returns false, and returns what next did.
func update(value *atomic.Int64, next func(old int64) (new int64, ok bool)) bool {
	for {
		old := value.Load()
		if new, ok := next(old); !ok || new == old || value.CompareAndSwap(old, new) {
			return ok
		}
	}
}
