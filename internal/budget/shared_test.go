package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// drawn is lognormal around median, and times longer for a share of attempts.
func drawn(id uint64, attempt int, median time.Duration, sigma, share, times float64) time.Duration {
	r := simulation.Generator(1, id, attempt)
	d := float64(median) * math.Exp(sigma*r.NormFloat64())
	if r.Float64() < share {
		d *= times
	}
	return time.Duration(d)
}

// TestAuto_AGreedyMethodStarvesNone has one modest method among greedy methods. A greedy method's
// hedges gain little each, and it wants more of them than the budget pays for. The modest method has
// few slow calls: 3% of attempts, or those to a backend that stalls for a second each minute. All
// methods pay one price, so its hedges are sent.
func TestAuto_AGreedyMethodStarvesNone(t *testing.T) {
	longtest.Simulation(t)
	for _, tc := range longtest.First(3, []struct {
		rate    float64
		methods uint64
		stalls  bool
	}{
		{5, 2, false}, {5, 12, false}, {100, 12, true},
		{5, 2, true}, {5, 12, true}, {100, 2, false}, {100, 2, true}, {100, 12, false},
		{1000, 2, false}, {1000, 2, true}, {1000, 12, false}, {1000, 12, true},
	}) {
		run := func(options ...hedge.Option) (late, of int, load float64) {
			calls, _ := simulation.Client{
				Rate: tc.rate, Calls: max(2_500*int(tc.methods), int(tc.rate)*120), Methods: int(tc.methods),
				Seed: 3, Options: options,
				Latency: func(id uint64, attempt int, at time.Duration) time.Duration {
					switch stall := at % time.Minute; {
					case id%tc.methods != 0:
						return drawn(id, attempt, 10*time.Millisecond, .8, 0, 0)
					case !tc.stalls:
						return drawn(id, attempt, 5*time.Millisecond, .3, .03, 60)
					case stall < time.Second && (id/tc.methods+uint64(attempt))%3 == 0:
						return time.Second - stall
					}
					return drawn(id, attempt, 5*time.Millisecond, .3, 0, 0)
				},
			}.Run(t)
			for _, c := range calls[len(calls)/3:] {
				if c.ID%tc.methods == 0 {
					of++
					if c.Took > 100*time.Millisecond {
						late++
					}
				}
			}
			return late, of, calls.Load()
		}
		plain, of, _ := run(hedge.WithMaxHedges(0))
		hedged, _, load := run()
		t.Logf("%+v: %d of %d modest calls late, %d with hedges, load %.1f%%", tc, plain, of, hedged, 100*load)
		if hedged > plain/2+3 || load > .10 {
			t.Errorf("%+v: %d late calls with hedges, %d without, load %.3f", tc, hedged, plain, load)
		}
	}
}
