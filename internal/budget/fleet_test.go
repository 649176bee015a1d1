package budget_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// trickle is lognormal around 5 ms, and eight times that for 5% of attempts.
func trickle(r *rand.Rand) time.Duration {
	d := 5 * math.Exp(0.45*r.NormFloat64())
	if r.Float64() < 0.05 {
		d *= 8
	}
	return time.Duration(d * float64(time.Millisecond))
}

// A twelfth of attempts takes longer than trickleDelay, which five tokens at 10% pay for.
func trickleDelay() time.Duration {
	r, took := rand.New(rand.NewPCG(5, 5)), make([]time.Duration, 20_000)
	for i := range took {
		took[i] = trickle(r)
	}
	slices.Sort(took)
	return took[len(took)*11/12]
}

// between counts the times from one on and before another.
func between(times []time.Duration, from, to time.Duration) (n int) {
	for _, at := range times {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// TestRule12_FleetInAnOutage lets quiet clients lose a service that they share, for a minute and at
// the same moment. Each keeps to its share and three hedges, and the fleet is back at its share
// after ten seconds.
func TestRule12_FleetInAnOutage(t *testing.T) {
	longtest.Simulation(t)
	const outage, over, share = 5 * time.Minute, 6 * time.Minute, 0.10
	delay := trickleDelay()
	for _, tc := range []struct {
		name   string
		slower time.Duration
		most   float64 // hedges beyond the share: some win: their primaries would have been slow anyway
	}{
		{"every call takes a second longer", time.Second, 5},
		{"no attempt answers", time.Hour, 3},
	} {
		for rate, clients := range map[float64]int{0.2: longtest.Size(5, 100), 1: longtest.Size(50, 1_000),
			5: longtest.Size(5, 100)} {
			var began, sent []time.Duration // of the fleet
			worst, most := 0.0, tc.most
			if rate > 1 { // two seconds of over ten calls earn more than one hedge
				most += 0.5
			}
			for seed := range uint64(clients) {
				var mu sync.Mutex // attempts of a moment begin at once
				var hedges []time.Duration
				calls, _ := simulation.Client{
					Rate: rate, Calls: int(rate * 6.5 * 60), Seed: seed,
					Options: []hedge.Option{hedge.WithTrigger(hedge.Fixed(delay))},
					Latency: func(id uint64, attempt int, at time.Duration) time.Duration {
						d := trickle(simulation.Generator(seed, id, attempt))
						if attempt > 0 {
							mu.Lock()
							hedges = append(hedges, at)
							mu.Unlock()
						}
						if at >= outage && at < over {
							d += tc.slower
						}
						return d
					},
				}.Run(t)
				beyond := float64(between(hedges, outage, over)) - share*float64(len(calls.Between(outage, over)))
				worst = max(worst, beyond)
				if beyond > most {
					t.Errorf("%v a second, %s, seed %d: %.1f hedges beyond the share", rate, tc.name, seed, beyond)
				}
				sent = append(sent, hedges...)
				for _, c := range calls {
					began = append(began, c.At)
				}
			}
			t.Logf("%v a second, %s: at most %.1f hedges beyond the share", rate, tc.name, worst)
			for _, window := range []struct {
				name     string
				from, to time.Duration
			}{
				{"the minute before it", outage - time.Minute, outage},
				{"its first 10 s", outage, outage + 10*time.Second},
				{"the 50 s after that", outage + 10*time.Second, over},
			} {
				calls, hedges := between(began, window.from, window.to), between(sent, window.from, window.to)
				load := float64(hedges) / float64(calls)
				t.Logf("%d clients, %s: %d calls, %d hedges, %.1f%% more", clients, window.name, calls, hedges,
					100*load)
				if most := share*float64(calls) + (tc.most+3)/2*float64(clients); float64(hedges) > most {
					t.Errorf("%s, %s: %d hedges, want at most %v", tc.name, window.name, hedges, most)
				}
				if load > 0.105 && rate == 1 && window.from == outage+10*time.Second {
					t.Errorf("%s: %.1f%% more after the first ten seconds, want at most 10.5%%", tc.name, 100*load)
				}
			}
		}
	}
}
