package learn

import (
	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/stats"
)

// Hedging steps down when the tail would improve by less than worthwhile, or when the share of hedges that win, relative
// to what is predicted, falls below losing. It steps up again when that share is above winning and the improvement is
// obvious, or worthwhile so many times in a row that it is not chance.
const (
	worthwhile       = 0.05
	worthwhileLosing = 0.10 // where hedges win seldom: what is predicted of few is too good on average
	worthwhileAgain  = 0.15 // the same, when it has stepped down for that
	worthwhileFar    = 0.25 // of the percentile ten times as far out
	obvious          = 0.25
	persistent       = 5
	hopeless         = 0.15 // nothing is gained by hedges that do not win, whatever it looks like
	losing           = 0.4
	winning          = 0.55
)

// tricklePercent is the budget that is left when hedging has stepped down.
const tricklePercent = 0.6

// judgement is whether hedging pays.
type judgement struct {
	evidence  evidence
	promising int            // how many times in a row hedging would have been worthwhile since it stepped down
	trickle   *budget.Bucket // nil until hedging first stepped down
	noted     stats.StepDown // by the last change that was noted
}

// evidence is how hedged calls have fared against what was predicted. It counts the last hundred of them, however
// long ago they were: a method that has stepped down makes few.
type evidence struct {
	hedged, won, expected float64
}

const (
	remembered  = 100 // hedged calls
	assumedWins = 5   // further ones that are taken to have been predicted
)

// add takes ended calls into account, of which the share given was expected to be answered by a hedge.
func (e *evidence) add(won, lost int64, share float64) {
	e.hedged += float64(won + lost)
	e.won += float64(won)
	e.expected += float64(won+lost) * share
	if e.hedged > remembered {
		fade := remembered / e.hedged
		e.hedged, e.won, e.expected = remembered, e.won*fade, e.expected*fade
	}
}

// ratio is how often hedges won, relative to what was predicted. Without evidence it leaves things as they are.
func (e *evidence) ratio(down stats.StepDown) float64 {
	won := e.won + assumedWins
	if down == stats.HedgesLose {
		won = e.won + losing*assumedWins
	}
	return won / (e.expected + assumedWins)
}

// wins is the ratio of the evidence. It is 1 where few hedges win, but a skeptic finds that these are worth it.
func (j *judgement) wins(c *Config, before stats.StepDown, problem knee.Problem) float64 {
	wins := j.evidence.ratio(before)
	enough := worthwhileLosing
	switch {
	case before == stats.HedgesLose && wins >= winning:
		return wins
	case before == stats.HedgesLose:
		enough = worthwhileAgain
	case j.evidence.hedged < remembered:
		return max(wins, losing) // too few to tell
	case wins >= losing:
		return wins
	}
	problem.Skeptical = true
	if shown, ok := knee.Find(problem); ok && wins > hopeless && c.gain(problem.Primary, shown) >= enough {
		return 1
	}
	return wins
}

// step says whether hedging is to be stepped down, and why, when it was before for the reason given.
func (j *judgement) step(before stats.StepDown, gain, wins float64) stats.StepDown {
	now := stats.NotSteppedDown
	switch {
	case wins < losing, before == stats.HedgesLose && wins < winning:
		now = stats.HedgesLose
	case gain < worthwhile:
		now = stats.LittleToGain
	}
	if now != stats.NotSteppedDown || before == stats.NotSteppedDown {
		j.promising = 0
		return now
	}
	if j.promising++; gain < obvious && j.promising < persistent {
		return before
	}
	return stats.NotSteppedDown
}
