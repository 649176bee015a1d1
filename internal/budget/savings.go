package budget

// savings are what went beyond a bucket's burst. They are for late calls that come when the burst is spent: the few that a
// client of one call a second has by chance, and the many of a fast one when a backend stands still.
//
// They pay only while hedges win, which is judged in two ways:
//   - A score between 0 and 6 goes up by two when a hedge answers a hedged call, and down by one when none does. Savings pay
//     from 4 on: while more than a third of hedged calls are answered by a hedge. Three that are not stop them.
//   - A hedge that savings paid for is unproven until a hedge wins. At most two are, and each win proves one.
type savings struct {
	tokens   int64 // nano-tokens
	score    int
	unproven int
}

const (
	savedBursts = 4

	maxScore    = 6
	payingScore = 4
	winScore    = 2
	lossScore   = 1

	maxUnproven = 2
)

// pay takes a price, or returns false and takes nothing.
func (s *savings) pay(price int64) bool {
	if s.tokens < price || s.score < payingScore || s.unproven >= maxUnproven {
		return false
	}
	s.tokens -= price
	s.unproven++
	return true
}

func (s *savings) refund(price int64) {
	s.tokens += price
	s.unproven = max(s.unproven-1, 0)
}

func (s *savings) hedged(won bool) {
	if !won {
		s.score = max(s.score-lossScore, 0)
		return
	}
	s.score = min(s.score+winScore, maxScore)
	s.unproven = max(s.unproven-1, 0)
}
