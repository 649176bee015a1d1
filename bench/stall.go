package main

import (
	"sync"
	"time"
)

// stalls is how long the machine stood still for this process: the sum and the longest of the times for which
// a goroutine that had nothing to do but wait was late by more than stallFloor. Calls cannot be faster than
// that, hedged or not, so a tail measured meanwhile is partly the machine's.
type stalls struct {
	total, longest, watched time.Duration
}

const (
	stallFloor = 5 * time.Millisecond // a busy scheduler's own noise stays below
	stallProbe = time.Millisecond
)

// share is the stalls as a share of the time watched.
func (s stalls) share() float64 {
	if s.watched <= 0 {
		return 0
	}
	return float64(s.total) / float64(s.watched)
}

// add takes a wait into account that was late by so much.
func (s *stalls) add(late time.Duration) {
	if late > stallFloor {
		s.total += late
		s.longest = max(s.longest, late)
	}
}

// watchStalls watches until the function that it returns is called.
func watchStalls() (end func() stalls) {
	var s stalls
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
	return func() stalls {
		close(quit)
		wg.Wait()
		s.watched = time.Since(start)
		return s
	}
}

// stallsThatShow is the share of time that stalls must take to make a difference to p99.9.
const stallsThatShow = 0.0005
