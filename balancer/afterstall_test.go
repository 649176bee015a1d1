package balancer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
)

// slowBackend is a cluster of three backends. The first one is slower than the others from some
// time on, and stalls once, after a minute.
type slowBackend struct {
	name     string
	kind     kind
	later    time.Duration
	from     time.Duration
	stall    time.Duration
	deadline time.Duration // of each call; 0: none
	options  []hedge.Option
}

// run makes 200 calls per second at random times, until halfMinutes after the stall. It returns the
// share of primaries on the slow backend in each of these half minutes; 1 is a third of the
// primaries.
func (b slowBackend) run(t *testing.T, seed uint64, halfMinutes int) []float64 {
	const slice = 30 * time.Second
	distribution, end := testserver.LogNormal(5*ms, 2*ms), time.Minute+b.stall
	all, slow := make([]atomic.Int64, halfMinutes+1), make([]atomic.Int64, halfMinutes+1)
	row := simulate(t, testserver.Config{Seed: seed, CountsOnly: true}, over(roundRobin),
		func(began time.Time) testserver.Script {
			return func(a testserver.Attempt) testserver.Plan {
				at, delay, here := a.Arrival.Sub(began), a.Draw(distribution), a.Backend == stalled
				if a.Number == 0 && at >= end {
					if all[(at-end)/slice].Add(1); here {
						slow[(at-end)/slice].Add(1)
					}
				}
				if here && at >= b.from {
					delay += b.later
				}
				if here && at >= time.Minute && at < end {
					delay += end - at
				}
				return testserver.Plan{Delay: delay}
			}
		}, traffic{kind: b.kind, rate: 200, lasts: end +
			time.Duration(halfMinutes)*slice, deadline: b.deadline, rng: generator(seed, 2)}, b.options...).row
	shares := make([]float64, halfMinutes)
	for i := range shares {
		shares[i] = 3 * float64(slow[i].Load()) / float64(all[i].Load())
	}
	t.Logf("%.1f%% extra load, %d of %d moved, delay %v; shares %.2f", 100*row.HedgeRate(), row.Moved, row.Calls,
		row.Delay, shares)
	return shares
}

// In TestSilence_AfterAStall a healthy but slow backend stalls once. During the stall the delay
// that is learned from the other backends becomes too short for it. Two minutes later it has half
// of its share again, and after five minutes 95%.
func TestSilence_AfterAStall(t *testing.T) {
	longtest.Simulation(t)
	unary, stream := kinds[0], kinds[1]
	const stall = 40 * time.Second
	generous := []hedge.Option{hedge.WithBudgetPercent(50)} // the delay excludes the slow backend at any time
	for _, b := range []slowBackend{
		{name: "slower without a stall", kind: unary, later: 200 * ms, from: time.Minute},
		{name: "slower without a stall, large budget", kind: unary, later: 200 * ms, from: time.Minute, options: generous},
		{name: "15 ms", kind: unary, later: 15 * ms, stall: stall},
		{name: "15 ms, streams", kind: stream, later: 15 * ms, stall: stall},
		{name: "long stall", kind: unary, later: 15 * ms, stall: 5 * time.Minute},
		{name: "200 ms", kind: unary, later: 200 * ms, stall: stall},
		{name: "not slower", kind: unary, stall: stall},
		{name: "short stall", kind: unary, later: 15 * ms, stall: 5 * time.Second},
		{name: "large budget", kind: unary, later: 15 * ms, stall: stall, options: generous},
	}[:longtest.Table(1, 3, 9)] {
		t.Run(b.name, func(t *testing.T) {
			for seed := range uint64(longtest.Table(1, 1, 20)) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					for i, share := range b.run(t, seed, longtest.Size(5, 11)) {
						if i >= 4 && share < 0.5 || i >= 10 && share < 0.95 {
							t.Errorf("after %v it has %.2f of its share", time.Duration(i)*30*time.Second, share)
						}
					}
				})
			}
		})
	}
}

// TestSilence_ProbesMeetDeadlines makes calls with a deadline of 200 ms while a backend stalls.
// Some calls are probes of it, and none fails.
func TestSilence_ProbesMeetDeadlines(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	b := slowBackend{kind: kinds[0], stall: 2 * time.Minute, deadline: 200 * ms}
	b.run(t, 1, 1)
}
