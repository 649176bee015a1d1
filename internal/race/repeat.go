package race

import "time"

// A call is sent again, once, if its server has closed the connection for too many resets. The
// repetition is a hedge, due as soon as no other attempt can answer. Without [Event].Repeat none of
// this has an effect.

// repeat is the progress of a race in repeating its call.
type repeat uint8

const (
	unwanted  repeat = iota
	wanted           // as soon as no attempt is in flight
	repeating        // the next hedge is the repetition, or it was sent
)

// mayRepeat notes that an attempt failed in a way that lets the call be sent again.
func (m *Machine) mayRepeat(e Event) {
	if e.Repeat && m.repeat == unwanted && !m.rules.FailureSendsNext {
		m.repeat, m.waits = wanted, true
	}
}

// repeats reports whether the hedge that is considered, or was sent last, repeats the call. If
// nothing else can decide the call, it makes that hedge due now, in place of the next regular
// hedge.
func (m *Machine) repeats(now time.Duration) bool {
	canDecide := m.inFlight != 0 || m.pending != nothing || m.rejected != OK
	if m.repeat == wanted && !canDecide && m.notBefore <= now && m.rules.MaxHedges > 0 && m.sent < MaxAttempts-1 {
		m.repeat, m.calledFor, m.due = repeating, true, now
		m.turns = min(m.turns, m.rules.MaxHedges-1)
	}
	return m.repeat == repeating
}
