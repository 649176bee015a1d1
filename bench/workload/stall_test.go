package workload

import (
	"testing"
	"time"
)

// TestWithStalls checks the latency of attempts that meet a stall of their backend, and of attempts
// that do not.
func TestWithStalls(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, tc := range []struct {
		name           string
		backend        int
		at, work, want time.Duration
	}{
		{"before", 0, 900 * ms, 50 * ms, 50 * ms},
		{"up to its start", 0, 950 * ms, 50 * ms, 50 * ms},
		{"under way at its start", 0, 990 * ms, 50 * ms, 1050 * ms},
		{"at its start", 0, s, ms, 1001 * ms},
		{"in the middle", 0, 1400 * ms, ms, 601 * ms},
		{"at its end", 0, 2 * s, ms, ms},
		{"another backend", 1, 1400 * ms, ms, ms},
		{"the second's turn", 1, 6400 * ms, ms, 601 * ms},
		{"the third's turn", 2, 11_400 * ms, ms, 601 * ms},
		{"the first's turn again", 0, 16_400 * ms, ms, 601 * ms},
		{"through two of them", 0, 500 * ms, 16 * s, 18 * s},
		{"into a second one by the delay of the first", 0, 1500 * ms, 14_100 * ms, 15_600*ms - 1500*ms + 500*ms + s},
	} {
		if got := withStalls(tc.backend, tc.at, tc.work); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
