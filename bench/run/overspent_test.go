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
	for _, tc := range []struct {
		name   string
		hedges []time.Duration
		won    int64
	}{
		{"none", nil, 0},
		{"all that is earned", every(100*time.Millisecond, 0, 60*second), 10},
		{"a burst at the start", every(time.Millisecond, second, 1020*time.Millisecond), 0},
		{"twice the budget for 10 s", every(50*time.Millisecond, 20*second, 30*second), 1000},
		{"all at once at the end", every(time.Microsecond, 59*second, 59*second+200*time.Microsecond), 50},
	} {
		got := overspent(calls, tc.hedges, 10, tc.won)
		want := bruteOverspent(calls, tc.hedges, 10, tc.won)
		if diff := got - want; diff > 1e-6 || diff < -1e-6 {
			t.Errorf("%s: overspent by %v, want %v", tc.name, got, want)
		}
	}
	twice := every(50*time.Millisecond, 20*second, 40*second) // 400 hedges in 20 s that earn 200, with a burst of 20
	if got := overspent(calls, twice, 10, 1000); got < 90 || got > 105 {
		t.Errorf("overspent by %v, want 100 without the savings of four bursts", got)
	}
	if got := overspent(calls, twice, 10, 0); got < 170 || got > 185 {
		t.Errorf("overspent by %v, want 180 if no hedge wins", got)
	}
}

// bruteOverspent checks every period between two hedges, and from the start.
func bruteOverspent(calls, hedges []time.Duration, percent float64, won int64) float64 {
	within := func(times []time.Duration, from, to time.Duration) (n float64) {
		for _, at := range times {
			if at >= from && at <= to {
				n++
			}
		}
		return n
	}
	burst := 1.0
	for _, at := range calls {
		burst = max(burst, percent/100*within(calls, at-burstWindow, at))
	}
	burst += min(4*burst, float64(2+won))
	worst := 0.0
	for _, to := range hedges {
		for _, from := range append([]time.Duration{0}, hedges...) {
			if from == 0 || to-from >= budgetWindow {
				worst = max(worst, within(hedges, from, to)-percent/100*within(calls, from+1, to)-burst-1)
			}
		}
	}
	return worst
}
