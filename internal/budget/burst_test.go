package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// TestBursts checks the figures of docs/budget.md: how many of the ten late calls in a burst of
// 100, once a minute, the budget pays for. No hedge wins, so there are no savings.
func TestBursts(t *testing.T) {
	for _, tc := range []struct {
		delay time.Duration
		want  int
	}{{10 * time.Millisecond, 7}, {time.Second, 7}, {2 * time.Second, 7}, {10 * time.Second, 7}, {time.Minute, 1}} {
		b, now, paid := budget.New(10), time.Unix(0, 0), 0
		for range 20 {
			for range 100 {
				b.Earn(now, tc.delay)
			}
			paid = 0
			for range 10 {
				if ok, _ := b.Pay(now.Add(tc.delay), .5); ok {
					paid++
					b.Hedged(false)
				}
			}
			now = now.Add(time.Minute)
		}
		t.Logf("late after %v: %d of 10 hedges are paid for", tc.delay, paid)
		if paid != tc.want {
			t.Errorf("late after %v: %d of 10 hedges are paid for, want %d", tc.delay, paid, tc.want)
		}
	}
}
