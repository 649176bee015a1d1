package guard_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/stats"
)

// chance fails a share of the calls.
func chance(share float64) func(*world, *method, bool) bool {
	return func(w *world, _ *method, _ bool) bool { return w.random.Float64() < share }
}

// TestGuard_FailuresByChance: failures that have nothing to do with hedges cost them a tenth at most, and at most few verdicts
// are wrong.
func TestGuard_FailuresByChance(t *testing.T) {
	longtest.Computation(t)
	outage := func(w *world, _ *method, _ bool) bool { return w.now.Unix()%300 < 30 && w.random.IntN(2) == 0 }
	more := func(w *world, _ *method, _ bool) bool { return w.random.Float64() < min(0.5, w.calls/1e6) }
	hours := longtest.Table(1, 6, 24)
	for _, tc := range []struct {
		name  string
		fails func(*world, *method, bool) bool
	}{
		{"one in twenty", chance(0.05)},
		{"one in a thousand", chance(0.001)},
		{"half a minute of every five", outage},
		{"ever more", more},
	} {
		seeds, wrong := longtest.Table(1, 3, 10), 0
		for seed := range uint64(seeds) {
			w := newWorld(seed, 100)
			w.fails = tc.fails
			if share := w.pass(10 * time.Minute); share < 0.9 {
				t.Errorf("%s, seed %d: %.3f of hedges are sent in the first ten minutes", tc.name, seed, share)
			}
			sum, was := 0.0, stats.GuardNone
			for range hours * 60 {
				sum += w.pass(time.Minute)
				if is := w.state(0).Reason; is != was {
					if was = is; is == stats.GuardGuilty {
						wrong++
					}
				}
			}
			if share := sum / float64(hours*60); share < 0.9 {
				t.Errorf("%s, seed %d: %.3f of hedges are sent", tc.name, seed, share)
			}
		}
		if most := 1 + seeds*hours/12; wrong > most {
			t.Errorf("%s: %d wrong verdicts in %d hours, want at most %d", tc.name, wrong, hours*seeds, most)
		}
	}
}

// TestGuard_FailuresOfHedges: where more calls fail with hedges, hedges become few, and fewer calls fail.
func TestGuard_FailuresOfHedges(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct {
		name          string
		methods       int
		with, without float64 // shares of calls that fail
		within        time.Duration
	}{
		{"one in fifty, none without", 1, 0.02, 0, 15 * time.Minute},
		{"the same, of five methods", 5, 0.02, 0, 15 * time.Minute},
		{"one in 200, none without", 1, 0.005, 0, time.Hour},
		{"one in ten, one in thirty without", 1, 0.1, 0.03, 30 * time.Minute},
	} {
		for seed := range uint64(longtest.Table(1, 5, 20)) {
			w := newWorld(seed)
			for range tc.methods {
				w.add(always(100/float64(tc.methods)), 0.1)
			}
			lately := 0.0                                           // hedges a call
			w.fails = func(w *world, _ *method, hedged bool) bool { // a server that bears half of the hedges
				lately *= 0.99
				if hedged {
					lately += 0.01
				}
				return w.random.Float64() < tc.without+(tc.with-tc.without)*min(1, max(0, 20*lately-1))
			}
			found := func() (n int) {
				for i := range w.methods {
					if w.state(i).Reason == stats.GuardGuilty {
						n++
					}
				}
				return n
			}
			for found() == 0 && w.age() < 2*tc.within {
				w.pass(second)
			}
			took := w.age()
			share := w.pass(3 * time.Hour)
			t.Logf("%s, seed %d: found after %v; in the hours after %.2f of hedges are sent, and %.2f%% of calls fail",
				tc.name, seed, took.Round(second), share, 100*float64(w.failed)/float64(w.made))
			if took > tc.within {
				t.Errorf("%s, seed %d: found after %v, want at most %v", tc.name, seed, took, tc.within)
			}
			if share > 0.9 {
				t.Errorf("%s, seed %d: %.2f of hedges are sent in the hours after", tc.name, seed, share)
			}
		}
	}
}
