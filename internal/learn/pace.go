package learn

import (
	"sync/atomic"
	"time"
)

// Pace keeps the choices of all learners of a scheduler together to about 1% of a core, however many methods are active. The
// zero Pace has made none.
type Pace struct {
	paid atomic.Int64 // until when the choices made so far have used up that share, ns after the epoch
}

const (
	paceShare = 100                   // one over the share of a core
	paceAhead = time.Second           // that choices may run ahead of their share
	usualCost = 50 * time.Microsecond // of a choice, until it is known
)

// take reports whether a choice may be made, at so many nanoseconds after the epoch, and counts it.
func (p *Pace) take(at int64) bool {
	if p == nil {
		return true
	}
	for {
		paid := p.paid.Load()
		from := max(paid, at)
		if from-at > int64(paceAhead) {
			return false
		}
		if p.paid.CompareAndSwap(paid, from+paceShare*int64(usualCost)) {
			return true
		}
	}
}

// took corrects the cost of a choice that was made.
func (p *Pace) took(d time.Duration) {
	if p != nil {
		p.paid.Add(paceShare * int64(d-usualCost))
	}
}
