package trigger_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// target is a world drawn by a seed: methods with different latencies that share the budget of one
// target.
type target struct {
	name    string
	client  client
	methods []method
	faulty  func(begun time.Duration) bool // reports whether to judge a call that begins then; nil: all calls
}

// method is a part of a target's calls. Latency is median·exp(sigma·N), and a few attempts or
// requests are slower.
type method struct {
	weight        float64
	median, sigma float64 // ms
	ofRequest     bool    // N is the request's, with an attempt's own exp(median/5) beside it
	tail, slow    float64 // share of attempts that take slow times longer
	long, takes   float64 // share of requests that take this many ms on each backend
}

func (m method) draw(r, a *rand.Rand) float64 {
	d := m.median * math.Exp(m.sigma*a.NormFloat64())
	if m.ofRequest {
		d = m.median*math.Exp(m.sigma*r.NormFloat64()) + m.median/5*a.ExpFloat64()
	}
	if chanceOf(a, m.tail) {
		d *= m.slow
	}
	if r.Float64() < m.long {
		d += m.takes
	}
	return d
}

// logUniform draws a number between from and to with a uniformly distributed logarithm.
func logUniform(r *rand.Rand, from, to float64) float64 {
	return from * math.Pow(to/from, r.Float64())
}

func drawnTarget(seed uint64) target {
	r := simulation.Generator(seed, 13, 13)
	var t target
	t.methods = make([]method, 2+r.IntN(11))
	rate := math.Round(logUniform(r, 1, 5000))
	sum := 0.0
	long, takes := max(.005*r.Float64()-.002, 0), logUniform(r, 500, 30_000)
	for i := range t.methods {
		m := method{
			weight:    r.ExpFloat64() + .05,
			median:    logUniform(r, 1, 50),
			sigma:     .2 + .4*r.Float64(),
			ofRequest: r.IntN(4) == 0,
		}
		if r.IntN(2) == 0 {
			m.tail, m.slow = logUniform(r, .01, .2), logUniform(r, 4, 100)
		}
		m.long, m.takes = long, takes
		sum += m.weight
		t.methods[i] = m
	}
	pick := func(seed, id uint64) int {
		x := simulation.Generator(seed, id, -4).Float64() * sum
		for i, m := range t.methods {
			if x -= m.weight; x < 0 {
				return i
			}
		}
		return 0
	}
	name := []string{fmt.Sprintf("target %d: %d methods, %v/s", seed, len(t.methods), rate)}
	if long > 0 {
		name = append(name, fmt.Sprintf("%.2f%% of requests take %.1f s", 100*long, takes/1000))
	}
	c := client{
		calls:   int(max(20_000, min(20*rate, 60_000))),
		rate:    rate,
		methods: len(t.methods),
		method:  pick,
		seed:    seed,
	}
	fault := func(_ int, _ time.Duration, d float64) float64 { return d }
	backends := 3 + r.IntN(8)
	switch r.IntN(5) {
	case 0: // slow bursts
		c.gathered, c.every = int(logUniform(r, 20, 1000)), time.Duration(logUniform(r, 10, 120)*float64(second)).
			Round(second)
		for i := range t.methods {
			t.methods[i].median *= 20
		}
		name[0] = fmt.Sprintf("target %d: %d methods, %d calls each %v", seed, len(t.methods), c.gathered, c.every)
	case 1: // a client in a fleet
		mean := 0.0
		for i := range t.methods {
			m := &t.methods[i]
			m.slow = min(m.slow, 20)
			m.long = 0
			mean += m.weight / sum * m.median * math.Exp(m.sigma*m.sigma/2) * (1 + m.tail*max(m.slow-1, 0))
		}
		c.clients, c.servers = 3+r.IntN(28), servers{count: 3 + r.IntN(18), workers: 4, stop: r.IntN(2) == 0}
		use := .2 + .6*r.Float64()
		c.rate = use * float64(c.servers.count*c.servers.workers) / mean * 1000
		name = []string{
			fmt.Sprintf("target %d: %d methods, %d clients, %d servers at %.0f%%, stop %v, %.0f/s", seed,
				len(t.methods), c.clients, c.servers.count, 100*use, c.servers.stop, c.rate),
		}
	case 2: // a backend that freezes periodically
		period := time.Duration(20+r.IntN(60)) * second
		length := time.Duration(logUniform(r, .02, .2) * float64(period)).Round(100 * ms)
		fault, t.faulty = frozen(length, period), within(length, period)
		c.calls = int(min(max(20_000, 4*period.Seconds()*rate), 100_000))
		name = append(name, fmt.Sprintf("one of %d backends frozen %v in %v", backends, length, period))
	case 3:
		by := math.Round(logUniform(r, 20, 2000))
		fault = slower(by)
		name = append(name, fmt.Sprintf("one of %d backends %v ms slower", backends, by))
	}
	c.distribution = func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		m := t.methods[pick(seed, id)]
		d := m.draw(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt))
		return inMillis(fault(backend(seed, id, attempt, backends), at, d))
	}
	t.client, t.name = c, strings.Join(name, ", ")
	return t
}

// run returns the latency of judged calls as multiples of their method's median: for the target, and
// for each method.
func (t target) run(seed uint64, p policy) (took [][]float64, extra float64) {
	sim := t.client
	sim.seed, sim.config = seed, config()
	var medians []float64
	for _, m := range t.methods {
		medians = append(medians, m.median)
	}
	done, _ := sim.under(p, medians...).run().judged(t.faulty)
	took = make([][]float64, 1+len(t.methods))
	for _, o := range done {
		x := float64(o.took) / float64(ms) / t.methods[o.method].median
		took[0] = append(took[0], x)
		took[1+o.method] = append(took[1+o.method], x)
	}
	for _, t := range took {
		slices.Sort(t)
	}
	return took, load(done)
}

// TestAuto_RealTargets compares the trigger with plain calls, two percentiles and three fixed
// delays in the same bucket. Seeds below untuned are targets that the trigger was tuned on. A ratio
// to the best of the six is the geometric mean over the targets, or over their methods.
func TestAuto_RealTargets(t *testing.T) {
	longtest.Computation(t)
	const untuned = 24
	for _, tc := range []struct {
		name             string
		from, to         uint64
		quick            bool
		targets, methods [5]float64 // bounds on p90, p95, p99, p99.9 and mean
	}{
		{
			name: "some", from: 8, to: 11, quick: true, targets: [5]float64{1.1, 1.1, 1.1, 1.5, 1.1},
			methods: [5]float64{1.1, 1.1, 1.1, 1.35, 1.1},
		},
		{
			name: "tuned", from: 0, to: untuned, targets: [5]float64{1.05, 1.12, 1.6, 1.35, 1.12},
			methods: [5]float64{1.05, 1.12, 1.3, 1.15, 1.12},
		},
		{
			name: "untuned", from: untuned, to: untuned + 12, targets: [5]float64{1.05, 1.1, 1.15, 1.35, 1.1},
			methods: [5]float64{1.05, 1.1, 1.1, 1.15, 1.1},
		},
	} {
		if !longtest.Long() && !tc.quick {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			var sums, counts [2][5]float64 // of the logarithms, for targets and methods
			for seed := tc.from; seed < tc.to; seed++ {
				target := drawnTarget(seed)
				c := compare(func(p policy) (all [][5]float64, extra float64) {
					took, extra := target.run(seed, p)
					for _, sorted := range took {
						all = append(all, measures(sorted))
					}
					return all, extra
				})
				t.Logf("| %s | %s | %.1f%% |", target.name, row(c.best[0], c.auto[0]), c.load)
				for k := range c.auto {
					for i, x := range c.auto[k] {
						if !math.IsNaN(x) {
							sums[min(k, 1)][i] += math.Log(x / c.best[k][i])
							counts[min(k, 1)][i]++
						}
					}
				}
			}
			for kind, most := range [][5]float64{tc.targets, tc.methods} {
				for i, what := range []string{"p90", "p95", "p99", "p99.9", "mean"} {
					ratio := math.Exp(sums[kind][i] / max(counts[kind][i], 1))
					t.Logf("%s of %s: %.2f times the best", what, []string{"targets", "methods"}[kind], ratio)
					if ratio > most[i] {
						t.Errorf("want at most %v", most[i])
					}
				}
			}
		})
	}
}

func row(best, hedged [5]float64) string {
	var cells []string
	for i := range best {
		if math.IsNaN(hedged[i]) {
			cells = append(cells, "–")
			continue
		}
		cells = append(cells, fmt.Sprintf("%s, %.2f", short(best[i]), hedged[i]/best[i]))
	}
	return strings.Join(cells, " | ")
}
