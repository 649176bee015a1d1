package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// TestRule12_FleetInAnOutage lets clients of one call a second each lose a service that they share, at the same moment.
func TestRule12_FleetInAnOutage(t *testing.T) {
	longtest.Computation(t)
	clients := longtest.Size(50, 1_000)
	for _, tc := range []struct {
		name             string
		slower, deadline time.Duration
	}{
		{"every call takes a second longer", time.Second, 0},
		{"no attempt answers, the deadline is 5 s", time.Hour, 5 * time.Second},
	} {
		var fleet []call
		worst := 0
		for seed := range uint64(clients) {
			ended := throughOutage(1, tc.slower, tc.deadline, seed)
			fleet = append(fleet, ended...)
			_, hedges := within(ended, outageFrom, outageFrom+10*time.Second)
			worst = max(worst, hedges)
		}
		for _, window := range []struct {
			name     string
			from, to time.Duration
		}{
			{"the minute before it", outageFrom - time.Minute, outageFrom},
			{"its first 10 s", outageFrom, outageFrom + 10*time.Second},
			{"the 50 s after that", outageFrom + 10*time.Second, outageTo},
			{"the whole minute", outageFrom, outageTo},
		} {
			calls, hedges := within(fleet, window.from, window.to)
			load := float64(hedges) / float64(calls)
			t.Logf("%s, %d clients, %s: %d calls, %d hedges, %.1f%% more", tc.name, clients, window.name, calls, hedges, 100*load)
			if most := percent/100.*float64(calls) + 3*float64(clients); float64(hedges) > most {
				t.Errorf("%s, %s: %d hedges, want at most %v", tc.name, window.name, hedges, most)
			}
			if load > 0.105 && window.from == outageFrom+10*time.Second {
				t.Errorf("%s: %.1f%% more after the first ten seconds, want at most 10.5%%", tc.name, 100*load)
			}
		}
		t.Logf("%s: the most that one client sent in the first 10 s: %d", tc.name, worst)
	}
}
