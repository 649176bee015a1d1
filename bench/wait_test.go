package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestWaitExactly checks that nobody is woken early, that an ended context wakes at once, and that it leaves nothing
// behind for those who wait next.
func TestWaitExactly(t *testing.T) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var late []time.Duration
	for i := range 200 {
		wg.Go(func() {
			for range 10 {
				if i%2 == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
					if err := waitExactly(ctx, time.Hour); err == nil {
						t.Error("an hour is over")
					}
					cancel()
					continue
				}
				began := time.Now()
				const d = 2 * time.Millisecond
				if err := waitExactly(t.Context(), d); err != nil {
					t.Error(err)
				}
				mu.Lock()
				late = append(late, time.Since(began)-d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(late)
	if late[0] < 0 {
		t.Errorf("woken %v early", -late[0])
	}
	t.Logf("late by %v in the median", quantile(late, 0.5))
}
