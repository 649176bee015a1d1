package main

import (
	"testing"
	"time"
)

// TestTrueQuantile checks the truth that a learned delay is drawn beside.
func TestTrueQuantile(t *testing.T) {
	shift, outage := workloadNamed("shift"), workloadNamed("outage")
	const run = 90 * time.Second
	base := shift.trueQuantile(0.90, time.Second, run)
	if base < 8*time.Millisecond || base > 10*time.Millisecond {
		t.Errorf("the p90 of stragglers is %v", base)
	}
	if got := shift.trueQuantile(0.90, 45*time.Second, run); got < 4*base-4 || got > 4*base+4 {
		t.Errorf("the p90 of stragglers four times as slow is %v, that of others %v", got, base)
	}
	if got := outage.trueQuantile(0.90, 45*time.Second, run); got != base+time.Second {
		t.Errorf("the p90 of stragglers 1 s slower is %v", got)
	}
	if got := outage.trueQuantile(0.90, 61*time.Second, run); got != base {
		t.Errorf("after the outage the p90 is %v", got)
	}
}
