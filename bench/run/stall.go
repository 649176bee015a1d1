package run

import (
	"sync"
	"time"
)

// Stalls measures how long the machine did not run this process: the sum and the maximum of the
// delays, above stallFloor, of a goroutine that only sleeps. Hedged and plain calls are delayed
// alike, so stalls are part of a tail measured at the time.
type Stalls struct {
	total, Longest, watched time.Duration
}

const (
	stallFloor = 5 * time.Millisecond // a busy scheduler's own noise stays below
	stallProbe = time.Millisecond
)

// Share is the stalls as a share of the time watched.
func (s Stalls) Share() float64 {
	if s.watched <= 0 {
		return 0
	}
	return float64(s.total) / float64(s.watched)
}

// add records a sleep that ended late.
func (s *Stalls) add(late time.Duration) {
	if late > stallFloor {
		s.total += late
		s.Longest = max(s.Longest, late)
	}
}

// watchStalls watches until the returned function is called.
func watchStalls() (end func() Stalls) {
	var s Stalls
	var wg sync.WaitGroup
	quit := make(chan struct{})
	start := time.Now()
	wg.Go(func() {
		timer := time.NewTimer(stallProbe)
		defer timer.Stop()
		for due := start.Add(stallProbe); ; {
			select {
			case <-timer.C:
				now := time.Now()
				s.add(now.Sub(due))
				due = now.Add(stallProbe)
				timer.Reset(stallProbe)
			case <-quit:
				return
			}
		}
	})
	return func() Stalls {
		close(quit)
		wg.Wait()
		s.watched = time.Since(start)
		return s
	}
}

// StallsThatShow is the share of time from which stalls change p99.9 noticeably.
const StallsThatShow = 0.0005
