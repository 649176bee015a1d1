package budget_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// arrivals is how calls come: at a rate, or so many at once every so long.
type arrivals struct {
	rate   float64 // calls a second on average, at random times; 0: at once
	atOnce int
	every  time.Duration
}

func (a arrivals) times(calls int, seed uint64) []time.Duration {
	r := rand.New(rand.NewPCG(seed, 3))
	times := make([]time.Duration, calls)
	now := 0.0
	for i := range times {
		if a.rate > 0 {
			now += r.ExpFloat64() / a.rate
			times[i] = time.Duration(now * float64(time.Second))
		} else {
			times[i] = a.every * time.Duration(i/a.atOnce)
		}
	}
	return times
}

// plannedDelay is the delay that the trigger plans with for calls that come so, if it knows the distribution.
func plannedDelay(l attemptDistribution, begins []time.Duration) time.Duration {
	b := budget.New(percent)
	for _, now := range begins {
		b.Earn(at(now), 1)
	}
	capacity := b.Balance(at(begins[len(begins)-1])).Capacity
	return beyond(l, percent/100.*min(capacity/(capacity+1), 0.95))
}

// TestArrivals_Tail has what a client gains whose calls are few, or come in bursts, if it knows their distribution.
func TestArrivals_Tail(t *testing.T) {
	longtest.Computation(t)
	const second, minute = time.Second, time.Minute
	for _, tc := range []struct {
		name         string
		distribution attemptDistribution
		arrivals
		most  float64 // p99, as a share of none's
		quick bool    // simulated without -hedge.long as well
	}{
		{"0.2 a second", slowTrickle, arrivals{rate: 0.2}, 0.41, false},
		{"1 a second", slowTrickle, arrivals{rate: 1}, 0.41, true},
		{"3 a second", slowTrickle, arrivals{rate: 3}, 0.40, false},
		{"10 a second", slowTrickle, arrivals{rate: 10}, 0.38, true},
		{"100 a second", slowTrickle, arrivals{rate: 100}, 0.36, false},
		{"20 each second", slowTrickle, arrivals{atOnce: 20, every: second}, 0.38, false},
		{"100 each 10 s", slowTrickle, arrivals{atOnce: 100, every: 10 * second}, 0.40, false},
		{"10 each 10 s", slowTrickle, arrivals{atOnce: 10, every: 10 * second}, 0.38, false},
		{"100 each minute", slowTrickle, arrivals{atOnce: 100, every: minute}, 0.40, true},
		{"1000 each minute", slowTrickle, arrivals{atOnce: 1000, every: minute}, 0.36, false},
		{"50 each 5 minutes", slowTrickle, arrivals{atOnce: 50, every: 5 * minute}, 0.40, false},
		{"400 ms, 1 a second", halfSecond, arrivals{rate: 1}, 0.35, false},
		{"400 ms, 4 a second", halfSecond, arrivals{rate: 4}, 0.30, true},
		{"400 ms, 20 a second", halfSecond, arrivals{rate: 20}, 0.28, false},
	} {
		if !*longtest.Long && !tc.quick {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			calls := longtest.Size(6_000, 20_000)
			worst, most := 0.0, 0.0
			for seed := range uint64(longtest.Size(1, 5)) {
				begins := tc.times(calls, seed)
				c := client{distribution: tc.distribution, begins: begins, delay: plannedDelay(tc.distribution, begins), hedges: 2, seed: seed}
				hedged := c.run()[calls/10:]
				c.hedges = 0
				share := p99(hedged) / p99(c.run()[calls/10:])
				_, sent := within(hedged, 0, math.MaxInt64)
				load := 100 * float64(sent) / float64(len(hedged))
				worst, most = max(worst, share), max(most, load)
				if share > tc.most {
					t.Errorf("seed %d: p99 is %.3f of none's, want at most %v", seed, share, tc.most)
				}
				if load > 10.5 {
					t.Errorf("seed %d: load %.2f%%, want at most 10.5%%", seed, load)
				}
			}
			t.Logf("p99 %.2f of none's, load %.1f%%", worst, most)
		})
	}
}

const (
	outageFrom = 5 * time.Minute
	outageTo   = 6 * time.Minute
)

// throughOutage is a client that has been well for five minutes, and then not for one.
func throughOutage(rate float64, by, deadline time.Duration, seed uint64) []call {
	return client{
		distribution: slower(slowTrickle, by, outageFrom, outageTo),
		begins:       arrivals{rate: rate}.times(int(rate*6.5*60), seed),
		delay:        trickleDelay,
		hedges:       2,
		deadline:     deadline,
		seed:         seed,
	}.run()
}

var trickleDelay = beyond(slowTrickle, percent/100.*5/6)
