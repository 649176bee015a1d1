package sketch

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// Meter counts bytes, for itself and for the meter that it is part of, if any. A window reports to its meter what it
// allocates and what it lets go of, so that memory can be bounded while it is used; recording costs nothing more for it.
// All methods may be called concurrently. The zero Meter is part of no other.
type Meter struct {
	whole *Meter
	bytes atomic.Int64
}

// released is what a released meter starts from: far below anything that is counted.
const released = math.MinInt64 / 2

// PartOf makes m, which has not counted yet, a part of another meter.
func (m *Meter) PartOf(whole *Meter) { m.whole = whole }

// Add counts n more bytes, or fewer if n is negative.
func (m *Meter) Add(n int64) {
	for ; m != nil; m = m.whole {
		if m.bytes.Add(n) < released/2 {
			return // released: what it is part of has been told, and is not told again
		}
	}
}

// Bytes returns what is counted; 0 if the meter was released.
func (m *Meter) Bytes() int64 {
	if n := m.bytes.Load(); n >= released/2 {
		return n
	}
	return 0
}

// Release takes all that m counts out of the meter that it is part of. Later additions do not count any more.
func (m *Meter) Release() {
	if n := m.bytes.Swap(released); n > released/2 {
		m.whole.Add(-n)
	}
}

// What the parts of a window take, rounded up to what the runtime allocates.
const (
	windowBytes = int64(unsafe.Sizeof(Window{}))
	originBytes = 24
	slotBytes   = (int64(unsafe.Sizeof(slot{})) + 31) / 32 * 32
	pageBytes   = int64(unsafe.Sizeof(page{}))
)
