package followup

import (
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/sketch"
)

const (
	// window is how long calls are remembered, in slots of step each. A method with few losers remembers more: see perSlot.
	window = 10 * time.Minute
	slots  = 6
	step   = window / (slots - 1)
	// perSlot is how many followed losers a slot waits for, up to longest.
	perSlot = 10
	longest = time.Hour
	// mostFollowed bounds the losers of a slot.
	mostFollowed = 256
)

// calls are calls that have ended, by weight.
type calls struct {
	known  sketch.Counts // those whose primary answered: 1 if a hedge was due, and else 1/share
	spread sketch.Counts // of those without a hedge that was due, the sum of w·(w − 1)
	gaveUp sketch.Counts // those whose callers left, or whose deadlines passed, before any answer; weighed as known
	cut    sketch.Counts // those whose primary was cut short, by what the caller waited

	hedged, hedges float64 // hedged calls, and their hedges
}

// slot holds the calls that ended in a part of the window.
type slot struct {
	calls
	start    time.Time
	followed []*Loser
	metered  int64
}

// Loser is a primary that was cut short and is followed.
type Loser struct {
	Longest time.Duration // that it is to run on

	began          time.Time
	waited         time.Duration // by the caller
	took           time.Duration // by the primary
	weight         float64
	over, answered bool
}

func (m *Method) slot(now time.Time) *slot {
	if len(m.slots) > 0 {
		s := m.slots[len(m.slots)-1]
		if age := now.Sub(s.start); age < step || age < longest && len(s.followed) < perSlot {
			return s
		}
	}
	return m.next(now)
}

// next begins a slot. The oldest makes way for it.
func (m *Method) next(now time.Time) *slot {
	if len(m.slots) == slots {
		m.memory.Add(-m.slots[0].metered)
		m.slots = append(m.slots[:0], m.slots[1:]...)
		m.judging = max(m.judging-1, 0)
	}
	s := &slot{start: now}
	m.slots = append(m.slots, s)
	return s
}

// count counts a call whose primary was not cut short by a hedge.
func (s *slot) count(c *Call) {
	weight := 1.0
	if !c.Late {
		weight = 1 / float64(c.Share)
	}
	if c.GaveUp {
		s.gaveUp.Add(c.Wait, weight)
		return
	}
	s.known.Add(c.Wait, weight)
	if !c.Late {
		s.spread.Add(c.Wait, weight*(weight-1))
	}
}

// weigh tells the meter how much memory a slot takes now.
func (m *Method) weigh(s *slot) {
	bytes := int64(unsafe.Sizeof(*s)) + int64(cap(s.known)+cap(s.spread)+cap(s.gaveUp)+cap(s.cut))*sketch.CountBytes +
		int64(cap(s.followed))*int64(unsafe.Sizeof(s)) + int64(len(s.followed))*int64(unsafe.Sizeof(Loser{}))
	m.memory.Add(bytes - s.metered)
	s.metered = bytes
}
