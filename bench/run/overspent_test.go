package run

import (
	"testing"
	"time"
)

func TestOverspent(t *testing.T) {
	every := func(d time.Duration, from, to time.Duration) (at []time.Duration) {
		for ; from < to; from += d {
			at = append(at, from)
		}
		return at
	}
	second := time.Second
	calls := every(10*time.Millisecond, 0, 60*second) // 10% of them earn 10 hedges a second; the burst is 20
	if got := overspent(calls, every(100*time.Millisecond, 0, 60*second), 10, 10); got > 0 {
		t.Errorf("overspent by %v where all that is earned is spent, want nothing", got)
	}
	twice := every(50*time.Millisecond, 20*second, 40*second) // 400 hedges in 20 s that earn 200, with a burst of 20
	if got := overspent(calls, twice, 10, 1000); got < 90 || got > 105 {
		t.Errorf("overspent by %v, want 100 without the savings of four bursts", got)
	}
	if got := overspent(calls, twice, 10, 0); got < 170 || got > 185 {
		t.Errorf("overspent by %v, want 180 if no hedge wins", got)
	}
}
