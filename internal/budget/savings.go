package budget

// savings are the tokens beyond a bucket's burst. They pay while hedges win: for one hedge for each
// win, of which two may be outstanding.
type savings struct {
	tokens int64 // nano-tokens
	wins   int   // that no hedge has been paid for
}

// These are constants too, but each takes a part out at some value, as TestParts does.
var (
	savedBursts = int64(4)
	leastWins   = 1 // that must be outstanding
)

const maxWins = 2

// pay takes a price, or returns false and takes nothing.
func (s *savings) pay(price int64) bool {
	if s.tokens < price || !s.pays() {
		return false
	}
	s.tokens -= price
	s.wins--
	return true
}

// pays reports whether savings pay for a hedge now.
func (s *savings) pays() bool { return s.wins >= leastWins }

func (s *savings) refund(price int64, sent bool) {
	s.tokens += price
	if !sent {
		s.won()
	}
}

// won records that a hedge answered its call, or was not sent.
func (s *savings) won() { s.wins = min(s.wins+1, maxWins) }
