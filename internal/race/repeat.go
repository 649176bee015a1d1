package race

import "time"

// repeat says how far a race has come with repeating its call after a cut.
type repeat uint8

const (
	unwanted  repeat = iota // no connection was cut
	wanted                  // as soon as no attempt is in flight
	repeating               // the next hedge repeats the call, and is the last one
	ruledOut                // a cut does not allow it, a server wants no further attempt, or there is a poor answer
)

// cut handles an attempt whose connection was cut, perhaps by what the request does to its server. Once the primary has ended too,
// no further hedge is sent, but for one that repeats the call, if every cut allows it. A primary in flight has the same request.
func (m *Machine) cut(e Event) {
	switch {
	case m.repeat == unwanted && e.Repeat && !m.noMore && m.rules.MaxHedges > 0:
		m.repeat = wanted
	case m.repeat != wanted || !e.Repeat:
		m.repeat = ruledOut
	}
	m.noMore = m.noMore || !m.inFlight.Has(0)
}

// callForRepetition makes the hedge that repeats the call due, if it is time for it: nothing else can decide the call.
func (m *Machine) callForRepetition(now time.Duration) {
	if m.repeat == wanted && m.sent < m.rules.MaxWithRepeat &&
		!m.decided && m.inFlight == 0 && m.pending == nothing && m.notBefore <= now {
		m.repeat, m.noMore, m.calledFor, m.waits, m.due = repeating, false, true, true, now
		m.turns = min(m.turns, m.rules.MaxHedges-1)
	}
}
