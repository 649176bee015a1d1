package run

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
)

// TestWaitExactly checks that no wait ends early, that the end of the context ends a wait at once,
// and that this does not affect later waits.
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
	t.Logf("late by %v in the median", figure.Quantile(late, 0.5))
}
