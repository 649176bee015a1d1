package followup

import (
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/sketch"
)

const (
	// window is how long calls are remembered, in slots of step each. A method with few calls remembers more: see full.
	window = 10 * time.Minute
	slots  = 6
	step   = window / (slots - 1)
	// perSlot is how many followed losers a slot waits for, up to longest.
	perSlot = 10
	longest = time.Hour
	// mostFollowed bounds the losers of a slot.
	mostFollowed = 256
)

// slot holds the calls that ended in a part of the window.
type slot struct {
	start time.Time
	low   int // the bucket of cells[0]
	cells []cell

	known, cut int // hedged calls whose primary answered or was cut short
	hedges     int
	followed   []record
	metered    int64
}

// cell counts the calls of one bucket, by weight.
type cell struct {
	late   float32 // a hedge was due; each has the weight 1
	early  float32 // drawn calls that were not late
	spread float32 // the sum of w·(w − 1) for these
	gaveUp float32
	waited float32 // calls whose primary was cut short, by what the caller waited
}

// record is a primary that was cut short and is followed.
type record struct {
	began  time.Time
	waited time.Duration // by the caller
	took   time.Duration // by the primary
	share  float32
	state  state
}

type state uint8

const (
	running state = iota
	ended
	cutShort
)

// slot returns the slot for calls that end at now.
func (m *Method) slot(now time.Time) *slot {
	if n := len(m.slots); n == 0 || m.slots[n-1].full(now) {
		return m.next(now)
	}
	return m.slots[len(m.slots)-1]
}

func (s *slot) full(now time.Time) bool {
	age := now.Sub(s.start)
	return age >= longest || age >= step && len(s.followed) >= perSlot
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
	if c.Hedges > 0 {
		s.known++
		s.hedges += c.Hedges
	}
	at, weight := s.cell(c.Wait), float32(1)
	if !c.Late {
		weight = 1 / c.Drawn
	}
	switch {
	case c.GaveUp:
		at.gaveUp += weight
	case c.Late:
		at.late++
	default:
		at.early += weight
		at.spread += weight * (weight - 1)
	}
}

// cell returns the cell of a duration.
func (s *slot) cell(d time.Duration) *cell {
	b := sketch.Bucket(d)
	switch {
	case len(s.cells) == 0:
		s.low, s.cells = b, make([]cell, 1, 64)
	case b < s.low:
		grown := make([]cell, len(s.cells)+s.low-b)
		copy(grown[s.low-b:], s.cells)
		s.low, s.cells = b, grown
	case b >= s.low+len(s.cells):
		s.cells = append(s.cells, make([]cell, b-s.low-len(s.cells)+1)...)
	}
	return &s.cells[b-s.low]
}

// weigh tells the meter how much memory a slot takes now.
func (m *Method) weigh(s *slot) {
	bytes := s.bytes()
	m.memory.Add(bytes - s.metered)
	s.metered = bytes
}

// bytes is what the slot takes.
func (s *slot) bytes() int64 {
	return int64(unsafe.Sizeof(*s)) + int64(cap(s.cells))*int64(unsafe.Sizeof(cell{})) +
		int64(cap(s.followed))*int64(unsafe.Sizeof(record{}))
}
