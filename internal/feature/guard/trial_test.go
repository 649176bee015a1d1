package guard_test

import (
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/stats"
)

// chance fails a share of the calls.
func chance(share float64) func(*world, *method, bool) bool {
	return func(w *world, _ *method, _ bool) bool { return w.random.Float64() < share }
}

// TestGuard_FailuresByChance: failures that have nothing to do with hedges cost them a tenth at most, in the first ten minutes and
// later, and there is at most one wrong verdict in ten hours.
func TestGuard_FailuresByChance(t *testing.T) {
	longtest.Computation(t)
	outage := func(w *world, _ *method, _ bool) bool { return w.now.Unix()%300 < 30 && w.random.IntN(2) == 0 }
	more := func(w *world, _ *method, _ bool) bool { return w.random.Float64() < min(0.5, w.calls/1e6) }
	for _, tc := range []struct {
		name  string
		fails func(*world, *method, bool) bool
	}{
		{"one in twenty", chance(0.05)},
		{"one in a hundred", chance(0.01)},
		{"one in a thousand", chance(0.001)},
		{"half a minute of every five", outage},
		{"ever more", more},
	} {
		seeds, long, wrong, first, later := 30, longtest.Table(1, 10, 30), 0, 0.0, 0.0
		for seed := range seeds {
			minutes := 10
			if seed < long {
				minutes = 600
			}
			w := newWorld(uint64(seed), 100)
			w.pass(time.Duration(seed) * 1133 * time.Millisecond)
			w.fails = tc.fails
			was := stats.GuardNone
			for minute := range minutes {
				if share := w.pass(time.Minute); minute < 10 {
					first += share / 10
				} else {
					later += share / 590
				}
				if is := w.state(0).Reason; is != was {
					if was = is; is == stats.GuardGuilty && seed < long {
						wrong++
					}
				}
			}
		}
		first, later = first/float64(seeds), later/float64(long)
		t.Logf("%s: %.3f of hedges are sent in the first ten minutes, later %.3f; %d wrong verdicts in %d hours", tc.name, first, later, wrong, 10*long)
		if first < 0.9 || later < 0.9 {
			t.Errorf("%s: %.3f of hedges are sent in the first ten minutes, later %.3f", tc.name, first, later)
		}
		if wrong > long {
			t.Errorf("%s: %d wrong verdicts in %d hours, want at most one in ten", tc.name, wrong, 10*long)
		}
	}
}

// TestGuard_FailuresOfHedges: where at least one call in a hundred fails because of hedges, at 50 calls a second or more, the guard finds
// that within a minute, in nineteen cases of twenty. From then on hedges are few, and fewer calls fail.
func TestGuard_FailuresOfHedges(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct {
		name          string
		rate          float64
		methods       int
		with, without float64 // shares of calls that fail
	}{
		{"one in a hundred, none without", 50, 1, 0.01, 0},
		{"one in fifty, none without", 100, 1, 0.02, 0},
		{"the same, of five methods", 100, 5, 0.02, 0},
		{"one in ten, one in thirty without", 100, 1, 0.1, 0.03},
	} {
		var took []time.Duration
		failed, share, seeds := 0.0, 0.0, longtest.Table(20, 60, 200)
		for seed := range uint64(seeds) {
			w := newWorld(seed)
			for range tc.methods {
				w.add(always(tc.rate/float64(tc.methods)), 0.2)
			}
			w.pass(time.Duration(seed) * 1133 * time.Millisecond)
			begin, hedge := w.now, w.now
			w.fails = func(w *world, _ *method, hedged bool) bool { // it does while it had a hedge lately
				if hedged {
					hedge = w.now
				}
				if w.now.Sub(hedge) < second/4 {
					return w.random.Float64() < tc.with
				}
				return w.random.Float64() < tc.without
			}
			guilty := func() bool {
				return slices.ContainsFunc(w.methods, func(m *method) bool { return m.State(w.now, w.traffic(m)).Reason == stats.GuardGuilty })
			}
			for !guilty() && w.now.Sub(begin) < 5*time.Minute {
				w.pass(second)
			}
			took = append(took, w.now.Sub(begin))
			if seed < 5 {
				share += w.pass(time.Hour) / 5
				failed += float64(w.failed) / float64(w.made) / 5
			}
		}
		slices.Sort(took)
		t.Logf("%s: found after %v, 19 in 20 within %v; then %.2f of hedges are sent, and %.2f%% of calls fail", tc.name,
			took[seeds/2].Round(second), took[seeds*19/20-1].Round(second), share, 100*failed)
		if took[seeds*19/20-1] > time.Minute {
			t.Errorf("%s: found after %v", tc.name, took)
		}
		if tc.without == 0 && failed > 0.4*tc.with || share > 0.9 {
			t.Errorf("%s: in the hour after %.2f of hedges are sent, and %.2f%% of calls fail", tc.name, share, 100*failed)
		}
	}
}

// TestGuard_FailuresAtADeadline: hedges save one call in twenty, which otherwise fails at its deadline. That may be in the next
// slice, where the failures of a slice without hedges say nothing against them.
func TestGuard_FailuresAtADeadline(t *testing.T) {
	longtest.Computation(t)
	for _, deadline := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 2500 * time.Millisecond, 5 * time.Second} {
		seeds, wrong := longtest.Table(40, 100, 400), 0
		for seed := range seeds {
			w := newWorld(uint64(seed))
			w.add(always(100), 0.05)
			w.pass(time.Duration(seed) * 1133 * time.Millisecond)
			due := w.due
			w.lasts, w.fails = deadline, func(w *world, _ *method, hedged bool) bool {
				slow := w.due != due
				due = w.due
				return slow && !hedged || w.random.IntN(100) == 0
			}
			w.pass(5 * time.Minute)
			if w.state(0).Reason == stats.GuardGuilty {
				wrong++
			}
		}
		t.Logf("%v: %d wrong verdicts in %d", deadline, wrong, seeds)
		if wrong > seeds/40 {
			t.Errorf("%v: %d wrong verdicts in %d", deadline, wrong, seeds)
		}
	}
}
