package run

import (
	"slices"
	"testing"
	"time"
)

// TestSeconds checks the figures of each second against a log written by hand.
func TestSeconds(t *testing.T) {
	ms := time.Millisecond
	r := &Result{
		Began:     []time.Duration{0, 900 * ms, 1100 * ms, 3500 * ms},
		Latencies: []time.Duration{5 * ms, 7 * ms, 9 * ms, 11 * ms},
		hedges:    []time.Duration{950 * ms, 1050 * ms, 1060 * ms, 9000 * ms},
		samples:   []sample{{time.Second, 6 * ms}, {2 * time.Second, 8 * ms}},
	}
	want := []Second{{2, 1, 7 * ms, 6 * ms}, {1, 2, 9 * ms, 8 * ms}, {0, 0, 0, 0}, {1, 0, 11 * ms, 0}}
	if got := r.Seconds(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
