package learn

import (
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/sketch"
)

type hedges struct {
	memory    *sketch.Meter                 // counts the window's memory; nil: none does
	window    atomic.Pointer[sketch.Window] // what they took from when they were sent; nil until there is one
	won, lost atomic.Int64                  // hedged calls since the last look
}

// open returns the window, made now if need be. It is nil if it was forgotten at this moment.
func (h *hedges) open(c *Config) *sketch.Window {
	if w := h.window.Load(); w != nil {
		return w
	}
	if made := sketch.NewKeeping(h.memory, c.Window, asHedges); !h.window.CompareAndSwap(nil, made) {
		made.Release()
	}
	return h.window.Load()
}

func (h *hedges) snapshot(now time.Time) *sketch.Distribution {
	if w := h.window.Load(); w != nil {
		return w.Snapshot(now)
	}
	return &sketch.Distribution{}
}

func (h *hedges) forget() {
	if w := h.window.Swap(nil); w != nil {
		w.Release()
	}
	h.count()
}

// count returns how many hedged calls ended since it was last asked, and how many of them a hedge answered.
func (h *hedges) count() (hedged, won int64) {
	won = h.won.Swap(0)
	return won + h.lost.Swap(0), won
}

// asHedges is for how many hedges what is known of primaries counts, as long as few hedges were seen.
const asHedges = 300
