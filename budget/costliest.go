package budget

import (
	"sync/atomic"
	"time"
)

// remembered is how long the costliest call counts: half of it at least. At 10 percent, a target with a costly call each six
// seconds earns the price of one such call in a minute.
const remembered = time.Minute

// costliest holds the cost of the costliest call, in units, of the running half of the time that it is remembered, and of the half
// before. Half n is at n modulo 2, as n<<32 | units, n modulo 2³².
type costliest [2]atomic.Uint64

func halfAt(elapsed time.Duration) uint32 { return uint32(elapsed / (remembered / 2)) }

func (d *costliest) note(elapsed time.Duration, units uint64) {
	n := halfAt(elapsed)
	for _, half := range d.load() {
		if ahead := uint32(half>>32) - n; ahead == 1 { // the time is late
			n++
		}
	}
	slot := &d[n%2]
	for {
		old := slot.Load()
		if uint32(old>>32) == n && uint64(uint32(old)) >= units || slot.CompareAndSwap(old, uint64(n)<<32|units) {
			return
		}
	}
}

// price returns the price of a hedge of the costliest call, in nano-tokens: one token at least.
func (d *costliest) price(elapsed time.Duration) int64 {
	n, units := halfAt(elapsed), uint64(unitsPerCall)
	for _, half := range d.load() {
		if age := n + 1 - uint32(half>>32); age <= 2 { // this half, the one before, or a later one if the time is late
			units = max(units, uint64(uint32(half)))
		}
	}
	return priceOf(units)
}

func (d *costliest) load() [2]uint64 { return [2]uint64{d[0].Load(), d[1].Load()} }
