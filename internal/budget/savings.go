package budget

// savings are the tokens beyond a bucket's burst. They pay for late calls once the burst is spent,
// and only while hedges win: from a score of 4 on, and for at most two hedges that no win has
// proven.
type savings struct {
	tokens   int64 // nano-tokens
	score    int
	unproven int
}

const (
	maxScore  = 6
	winScore  = 2
	lossScore = 1
)

// These are constants too, but each takes a part out at some value, as TestParts does.
var (
	savedBursts = int64(4)
	payingScore = 4
	maxUnproven = 2
)

// pay takes a price, or returns false and takes nothing.
func (s *savings) pay(price int64) bool {
	if s.tokens < price || !s.pays() {
		return false
	}
	s.tokens -= price
	s.unproven++
	return true
}

// pays reports whether savings pay for a hedge now.
func (s *savings) pays() bool { return s.score >= payingScore && s.unproven < maxUnproven }

func (s *savings) refund(price int64, sent bool) {
	s.tokens += price
	if !sent {
		s.unproven = max(s.unproven-1, 0)
	}
}

func (s *savings) hedged(won bool) {
	if !won {
		s.score = max(s.score-lossScore, 0)
		return
	}
	s.score = min(s.score+winScore, maxScore)
	s.unproven = max(s.unproven-1, 0)
}
