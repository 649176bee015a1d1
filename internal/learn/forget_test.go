package learn_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// TestAuto_ForgetsInMinutes has hedges be as slow as their primaries for half an hour, at two calls a second, and then as fast as
// any call. Five minutes later they are sent as if nothing had been.
func TestAuto_ForgetsInMinutes(t *testing.T) {
	longtest.Computation(t)
	const until = 30 * time.Minute
	distribution := func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		if at < until {
			attempt = 0
		}
		return slowTrickle(seed, id, attempt, at)
	}
	c := config()
	done := simulation{distribution: distribution, calls: 2 * 3600, rate: 2, seed: 1, config: c}.run().done
	of := func(from, to time.Duration) (calls []outcome) {
		for _, o := range done {
			if from <= o.at && o.at < to {
				calls = append(calls, o)
			}
		}
		return calls
	}
	before, after := load(of(until/2, until)), load(of(until+5*time.Minute, until+15*time.Minute))
	t.Logf("load %.1f%% while hedges are of no use, %.1f%% when they have been of use for five minutes", before, after)
	if after < 5 {
		t.Errorf("load %.1f%%, want 5%% at least", after)
	}
}
