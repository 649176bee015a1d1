package learn

import "github.com/grpchedge/hedge/stats"

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
func (e *evidence) add(hedged, won int64, share float64) {
	e.hedged += float64(hedged)
	e.won += float64(won)
	e.expected += float64(hedged) * share
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

// share is the part of hedged calls that a hedge answered; 0 without any.
func (e *evidence) share() float64 {
	if e.hedged == 0 {
		return 0
	}
	return e.won / e.hedged
}
