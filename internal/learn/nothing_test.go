package learn_test

import (
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/stats"
)

// TestNothingToGain: while followed losers show that there is nothing to gain, only the slowest calls are hedged, whatever primaries
// look like. When they show the contrary, hedging is back with the next choice. It is told once each way.
func TestNothingToGain(t *testing.T) {
	longtest.Computation(t)
	const rate, from, to = 500, 30 * time.Second, 60 * time.Second
	s := simulation{
		distribution: independent(testserver.DistributionT(t, "straggler")), calls: 90 * rate, rate: rate, seed: 1, config: config(),
		nothing: func(at time.Duration) bool { return from <= at && at < to },
	}.run()
	within := func(from, to time.Duration) (calls []outcome) {
		for _, c := range s.done {
			if from <= c.at && c.at < to {
				calls = append(calls, c)
			}
		}
		return calls
	}
	before, down, back := load(within(10*time.Second, from)), load(within(from+2*time.Second, to)), load(within(to+2*time.Second, 90*time.Second))
	if before < 6 || down > 1 || back < 6 {
		t.Errorf("load %.2f%%, %.2f%% while there is nothing to gain, %.2f%% afterwards", before, down, back)
	}
	if want := []stats.StepDown{stats.NothingToGain, stats.NotSteppedDown}; !slices.Equal(s.stepped, want) {
		t.Errorf("told %q, want %q", s.stepped, want)
	}
	if again := tail(within(to+2*time.Second, 90*time.Second), 0.99); again > 20 {
		t.Errorf("p99 is %.1f ms afterwards", again)
	}
}

// TestNothingToGain_AmongReasons: hedges that lose are the stronger reason, as they then get a budget of their own. A gain that is
// predicted too small is the weaker one. Without any reason, hedging that stepped down for what followed losers showed is back at once.
func TestNothingToGain_AmongReasons(t *testing.T) {
	longtest.Computation(t)
	always := func(time.Duration) bool { return true }
	slow := testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10)
	for _, tc := range []struct {
		name string
		draw attemptDistribution
		want stats.StepDown
	}{
		{"hedges lose", func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
			return slow.Draw(generator(seed, id, 0)) + time.Duration(attempt)*ms
		}, stats.HedgesLose},
		{"little to gain", independent(testserver.LogNormal(20*ms, 200*time.Microsecond)), stats.NothingToGain},
		{"much to gain", independent(slow), stats.NothingToGain},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := simulation{distribution: tc.draw, calls: 20_000, rate: 500, seed: 1, config: config(), nothing: always}.run()
			c := s.learner.Estimate().Choice
			if c.SteppedDown != tc.want {
				t.Errorf("stepped down: %q, want %q", c.SteppedDown, tc.want)
			}
			if (s.learner.Estimate().Trickle != nil) != (tc.want == stats.HedgesLose) {
				t.Errorf("a budget of its own: %v", s.learner.Estimate().Trickle)
			}
		})
	}
}
