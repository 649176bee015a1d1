package engine

import (
	"math"
	"time"
)

// suspicion weighs whether connections of a target are cut because of resets, where the server does not say so. It compares:
// after a cut in the wake of resets, none is sent for a pause of less than a minute. If connections are cut in pauses too,
// or as rarely with resets as could be chance, resets are not to blame.
type suspicion struct {
	seen           resetsSeen    // with the last cut
	borne          resetsSeen    // the most that a connection has borne without a cut
	unlimitedSince time.Time     // when resets became unlimited; zero: with the first reset
	cuts           int           // in the wake of resets
	exposed        time.Duration // the time with resets that these cuts took
	clear          time.Duration // the time of pauses without a cut
	turns          int
	skipped        bool          // there was no pause after the last cut
	confirmed      bool          // a cut without a pause before it came as fast as the others
	trust          time.Duration // how long the next refutation counts; it doubles with each
	trusted        time.Time     // until when cuts are taken for chance
}

// resetsSeen is how many resets were sent before a connection was cut: in the last minute, and in the fullest of the last
// two seconds.
type resetsSeen struct{ minute, second int }

const (
	// shortPause and longPause are the pauses, in turn, so that something that happens each minute meets one.
	shortPause, longPause = 45 * time.Second, 58 * time.Second
	// chance is the probability below which resets are to blame.
	chance = 0.01
	// mostExposed is the time with resets after which a cut is no evidence.
	mostExposed = 2 * time.Minute
	// firstTrust is how long the first refutation counts, and longestTrust how long in the end.
	firstTrust, longestTrust = 10 * time.Minute, 2 * time.Hour
)

// pause is how long no resets are sent after a cut. Every third time there is no pause: then something that happens at
// intervals comes later than usual, by the pause that is missing, and a server that counts does not.
func (s *suspicion) pause() time.Duration {
	s.turns++
	s.skipped = s.turns%3 == 0
	return [...]time.Duration{0, shortPause, longPause}[s.turns%3]
}

// passed says that a pause went by without a cut.
func (s *suspicion) passed(d time.Duration) { s.clear += min(d, longPause) }

// add adds a cut while resets were unlimited, and reports whether it is enough to blame them. Cuts that have nothing to do
// with resets would all come in the time with resets with the probability (exposed / all) to the power of their number.
//
// A server that counts cuts where more is sent than it has borne so far. A cut after less is no evidence.
func (s *suspicion) add(seen resetsSeen, now time.Time) bool {
	if 10*seen.minute < 9*s.borne.minute && 10*seen.second < 9*s.borne.second {
		return false
	}
	took := mostExposed
	if !s.unlimitedSince.IsZero() {
		took = min(took, now.Sub(s.unlimitedSince))
	}
	late := s.skipped && 5*took > 7*s.exposed/time.Duration(max(s.cuts, 1))
	if took == mostExposed || late { // no server that counts waits for so long
		s.cuts, s.exposed, s.clear, s.confirmed = 0, 0, 0, false
	}
	s.confirmed = s.confirmed || s.skipped && !late && took < mostExposed
	s.cuts++
	s.exposed += took
	return s.confirmed && math.Pow(float64(s.exposed)/float64(s.exposed+s.clear), float64(s.cuts)) < chance
}

// bears records resets that were sent without a cut.
func (s *suspicion) bears(seen resetsSeen) {
	s.borne.minute = max(s.borne.minute, seen.minute)
	s.borne.second = max(s.borne.second, seen.second)
}

// refutedBy reports whether a cut under a limit came after so few resets that these cannot be the reason.
func (s *suspicion) refutedBy(seen resetsSeen) bool { return 10*seen.minute < 6*s.seen.minute }

// refute says that connections are cut without resets too, and has cuts be taken for chance for a while.
func (s *suspicion) refute(now time.Time) {
	s.trust = min(max(2*s.trust, firstTrust), longestTrust)
	*s = suspicion{trust: s.trust, trusted: now.Add(s.trust)}
}

// exonerated reports whether cuts are taken for chance.
func (s *suspicion) exonerated(now time.Time) bool { return now.Before(s.trusted) }
