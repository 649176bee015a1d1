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

// cut handles an attempt whose connection was cut, perhaps by what the request does to its server. No further hedge is sent,
// but for one that repeats the call, if every cut allows it.
func (m *Machine) cut(e Event) {
	switch {
	case m.repeat == unwanted && e.Repeat && !m.noMore && m.sent < MaxAttempts-1 && m.rules.MaxHedges > 0:
		m.repeat = wanted
	case m.repeat != wanted || !e.Repeat:
		m.repeat = ruledOut
	}
	m.noMore = true
}

// repeats reports whether it is time to repeat the call: nothing else can decide it.
func (m *Machine) repeats(now time.Duration) bool {
	return m.repeat == wanted && m.phase == PrimaryFailed && m.inFlight == 0 && m.pending == nothing && m.notBefore <= now
}
