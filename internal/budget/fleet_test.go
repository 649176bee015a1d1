package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// TestRule12_FleetInAnOutage lets quiet clients lose a service that they share, for a minute and at the same moment. Each keeps to its
// share and three hedges, and the fleet is back at its share after ten seconds.
func TestRule12_FleetInAnOutage(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct {
		name             string
		slower, deadline time.Duration
		most             float64 // hedges beyond the share: some win, those of primaries that would have been slow anyway
	}{
		{"every call takes a second longer", time.Second, 0, 5},
		{"no attempt answers, the deadline is 5 s", time.Hour, 5 * time.Second, 3.5}, // two seconds of over ten calls earn more than one
	} {
		for rate, clients := range map[float64]int{0.2: longtest.Size(5, 100), 1: longtest.Size(50, 1_000), 5: longtest.Size(5, 100)} {
			var fleet []call
			worst, soon := 0.0, 0
			for seed := range uint64(clients) {
				ended := throughOutage(rate, tc.slower, tc.deadline, seed)
				fleet = append(fleet, ended...)
				_, first := within(ended, outageFrom, outageFrom+10*time.Second)
				soon = max(soon, first)
				calls, hedges := within(ended, outageFrom, outageTo)
				over := float64(hedges) - percent/100.*float64(calls)
				worst = max(worst, over)
				if over > tc.most || seed < 5 && over > 3 {
					t.Errorf("%v a second, %s, seed %d: %d hedges in %d calls: %.1f beyond the share", rate, tc.name, seed, hedges, calls, over)
				}
			}
			t.Logf("%v a second, %s: at most %.1f hedges beyond the share, and at most %d in the first 10 s", rate, tc.name, worst, soon)
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
				t.Logf("%d clients, %s: %d calls, %d hedges, %.1f%% more", clients, window.name, calls, hedges, 100*load)
				if most := percent/100.*float64(calls) + 3*float64(clients); float64(hedges) > most {
					t.Errorf("%s, %s: %d hedges, want at most %v", tc.name, window.name, hedges, most)
				}
				if load > 0.105 && rate == 1 && window.from == outageFrom+10*time.Second {
					t.Errorf("%s: %.1f%% more after the first ten seconds, want at most 10.5%%", tc.name, 100*load)
				}
			}
		}
	}
}
