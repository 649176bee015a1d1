package trigger

import (
	"sync/atomic"
	"time"
)

// schedule determines when the estimate is recomputed. Times are in nanoseconds after the origin.
type schedule struct {
	origin   time.Time
	learned  atomic.Int64 // latencies and bounds recorded
	nextSize atomic.Int64 // learned at which to recompute
	nextTime atomic.Int64 // time at which to recompute
	lastSize atomic.Int64 // learned at the last estimate
	busy     atomic.Bool  // an estimate is being computed
}

// interval is the least time between two estimates: a second in the default window.
func (c *Config) interval() time.Duration { return c.Window / 30 }

func (s *schedule) at(now time.Time) int64 { return int64(now.Sub(s.origin)) }

// old reports whether an estimate is due: n calls are enough, or it is stale intervals overdue.
func (s *schedule) old(c *Config, n int64, now time.Time, stale int64) bool {
	at, next := s.at(now), s.nextTime.Load()
	return at >= next && (n >= s.lastSize.Load()+newCalls || at >= next+int64(c.interval())*stale || !c.Auto)
}

// next schedules the estimate after one from n records, by size and by time: a fast method must not
// spend its first second, thousands of calls, on an estimate from its first twenty.
func (s *schedule) next(c *Config, n, at int64, choosing bool) {
	if choosing {
		s.nextSize.Store(2 * n)
	} else {
		s.nextSize.Store(n + n/4 + 1)
	}
	s.nextTime.Store(at + int64(c.interval()))
	s.lastSize.Store(n)
}

// Pace bounds the choices of all learners of a scheduler together to about 1% of a core, however many
// methods are active. The zero Pace has made no choice.
type Pace struct {
	paid atomic.Int64 // when the share has paid for the choices made, ns after the origin
}

const (
	paceShare = 100                    // 1 / the share of a core
	paceAhead = time.Second            // by which choices may run ahead of their share
	usualCost = 50 * time.Microsecond  // of a choice that has not ended
	maxCost   = 200 * time.Millisecond // of a choice; a longer one was interrupted, as by a stop of the process
)

// take reports whether a choice may be made at nanoseconds after the origin, and if so, pays usualCost.
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

// took replaces the usual cost of a choice made at nanoseconds after the origin by d, or by maxCost if
// d is longer. Choices that were interrupted together count as one.
func (p *Pace) took(at int64, d time.Duration) {
	if p == nil {
		return
	}
	paid := p.paid.Add(paceShare * int64(min(d, maxCost)-usualCost))
	if most := at + int64(d) + paceShare*int64(maxCost); paid > most {
		p.paid.CompareAndSwap(paid, most)
	}
}
