package learn

import (
	"math"
	"sync/atomic"
	"time"
)

// schedule says when an estimate is computed anew. Times are in nanoseconds after the epoch.
type schedule struct {
	epoch    time.Time
	learned  atomic.Int64 // latencies and bounds recorded so far
	nextSize atomic.Int64 // learned at which to compute anew
	nextTime atomic.Int64 // time at which to compute anew
	lastSize atomic.Int64 // learned when it was last computed
	busy     atomic.Bool  // an estimate is being computed
}

const (
	// An estimate is computed anew only when so many calls have ended since the last, or after so many times the interval.
	newCalls     = 50
	stale        = 9
	staleForNext = 4 // where a call begins, so that it does not go by an estimate from the fastest calls of a burst
)

// interval is the time from one estimate to the next: a second in the default window.
func (c *Config) interval() time.Duration { return c.Window / 30 }

func (s *schedule) at(now time.Time) int64 { return int64(now.Sub(s.epoch)) }

// old reports whether enough calls have ended since the last estimate, or it is so many intervals older than it need be.
func (s *schedule) old(c *Config, n int64, now time.Time, stale int64) bool {
	at, next := s.at(now), s.nextTime.Load()
	return at >= next && (n >= s.lastSize.Load()+newCalls || at >= next+int64(c.interval())*stale || !c.Auto)
}

// next plans the estimate after one from n records. It goes by size as well as by time, so that a fast method does not spend
// its first second, thousands of calls, on an estimate from its first twenty.
func (s *schedule) next(c *Config, n, at int64, choosing bool) {
	if choosing {
		s.nextSize.Store(2 * n)
	} else {
		s.nextSize.Store(n + n/4 + 1)
	}
	s.nextTime.Store(at + int64(c.interval()))
	s.lastSize.Store(n)
}

// postpone plans another try soon: it was not this learner's turn.
func (s *schedule) postpone(c *Config, at int64) {
	s.nextSize.Store(math.MaxInt64)
	s.nextTime.Store(at + int64(c.interval()/10))
}

// Pace keeps the choices of all learners of a scheduler together to about 1% of a core, however many methods are active. The
// zero Pace has made none.
type Pace struct {
	paid atomic.Int64 // until when the choices made so far have used up that share, ns after the epoch
}

const (
	paceShare = 100                    // one over the share of a core
	paceAhead = time.Second            // that choices may run ahead of their share
	usualCost = 50 * time.Microsecond  // of a choice, until it is known
	maxCost   = 200 * time.Millisecond // a choice that takes longer was interrupted: the process was stopped
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
		p.paid.Add(paceShare * int64(min(d, maxCost)-usualCost))
	}
}
