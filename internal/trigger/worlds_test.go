package trigger_test

import (
	"cmp"
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

// world is a service with a fault, in which the trigger must match the best of the simpler
// policies.
type world struct {
	name     string
	law      attemptDistribution
	rate     float64                        // calls per second
	calls    int                            // 0 is 40,000
	budget   float64                        // percent; 0 is 10
	faulty   func(begun time.Duration) bool // reports whether to judge a call that begins then; nil: all calls
	deadline time.Duration
	servers  servers
	chance   bool    // few calls are judged, so the result is noisy
	short    float64 // bound on the ratio to the best if the trigger falls short; 0: it must not
	quick    bool    // simulated even without HEDGE_TESTS
}

// healthy draws the latency of an attempt without a fault, in ms.
func healthy(a *rand.Rand) float64 { return 5 * math.Exp(0.4*a.NormFloat64()) }

// sick applies the fault of a backend to the latency of an attempt, in ms. n is the number of
// backends.
func sick(n int, usual func(r, a *rand.Rand) float64,
	fault func(backend int, at time.Duration, d float64) float64) attemptDistribution {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := usual(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt))
		return inMillis(fault(backend(seed, id, attempt, n), at, d))
	}
}

func plainly(_, a *rand.Rand) float64 { return healthy(a) }

// slower is a fault that adds by ms on the first backend.
func slower(by float64) func(int, time.Duration, float64) float64 {
	return func(backend int, _ time.Duration, d float64) float64 {
		if backend == 0 {
			d += by
		}
		return d
	}
}

// frozen is a fault that stalls the first backend for length in each period, from the middle of the
// period on.
func frozen(length, period time.Duration) func(int, time.Duration, float64) float64 {
	return func(backend int, at time.Duration, d float64) float64 {
		if since := at%period - period/2; backend == 0 && since >= 0 && since < length {
			d += float64(length-since) / float64(ms)
		}
		return d
	}
}

// within reports whether a call begins while a backend is frozen.
func within(length, period time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at%period >= period/2 && at%period < period/2+length }
}

// sometimes is a law in which the given share of attempts takes slow ms more.
func sometimes(share, slow float64) attemptDistribution {
	return ofRequest(func(_, a *rand.Rand) float64 {
		if chanceOf(a, share) {
			return slow + healthy(a)
		}
		return healthy(a)
	})
}

func sized(sigma float64) func(r, a *rand.Rand) float64 {
	return func(r, a *rand.Rand) float64 { return 5*math.Exp(sigma*r.NormFloat64()) + a.ExpFloat64() }
}

// knownWorlds are worlds in which a trigger with one percentile fails.
var knownWorlds = []world{
	{name: "one of 8 backends 100 ms slower", law: sick(8, plainly, slower(100)), rate: 500, quick: true},
	{name: "one of 9 backends 3 s slower", law: sick(9, plainly, slower(3000)), rate: 500},
	{name: "one of 3 backends 100 ms slower", law: sick(3, plainly, slower(100)), rate: 500},
	{name: "one attempt in five takes 200 ms", law: sometimes(.2, 200), rate: 500, quick: true},
	{name: "one attempt in ten takes 300 ms", law: sometimes(.1, 300), rate: 500, quick: true},
	{name: "one of 3 frozen 40 s in 80, deadline 5 s",
		law: sick(3, plainly, frozen(40*second, 80*second)), rate: 200, deadline: 5 * second,
		calls: 64_000},
	{name: "one of 3 frozen for a minute in 2, deadline 1 s",
		law: sick(3, plainly, frozen(60*second, 120*second)), rate: 100, deadline: second},
	{name: "sizes, one of 3 frozen 3 s a minute",
		law: sick(3, sized(.5), frozen(3*second, 60*second)), rate: 500, calls: 150_000,
		quick: true, short: 2.2},
	{name: "the same, while it is frozen", law: sick(3, sized(.5), frozen(3*second, 60*second)),
		rate: 500, calls: 150_000, faulty: within(3*second, 60*second), short: 2.35},
	{name: "no tail, one of 3 frozen 2 s a minute, 20/s",
		law: sick(3, plainly, frozen(2*second, 60*second)), rate: 20, calls: 60_000,
		short: 1.4}, // p99.9: tokens were spent in calm times
	{name: "one of 8 backends 100 ms slower, 5/s", law: sick(8, plainly, slower(100)), rate: 5,
		quick: true, short: 1.3}, // p95: the reserve has hedges wait
	{name: "straggler", law: straggler, rate: 500},
	{name: "sizes", law: sizes(1, .02, 200), rate: 500},
	{name: "heavy+2%", law: heavy(.02), rate: 500, short: 1.15},
	{name: "stalls", law: stallsInFive, rate: 500},
	{name: "half-second, 4/s", law: halfSecond, rate: 4, short: 1.2},
	{name: "all breathe, 8% slow", law: breathing(5 * second), rate: 500, calls: 150_000,
		faulty: after(30 * second), quick: true, short: 1.95},
	{name: "batches of 50 requests of one size, 8% slow", law: batches(50), rate: 500,
		calls: 60_000, faulty: after(30 * second), quick: true, short: 1.3},
	{name: "outages, and one of 8 backends 100 ms slower", law: outages(5*second, 40*second),
		rate: 100, faulty: beside(5*second, 40*second), short: 1.2},
	{name: "20 queues at 50% load", law: queued, servers: servers{count: 20, workers: 4}, rate: 1500},
	{name: "20 queues at 90% load", law: queued, servers: servers{count: 20, workers: 4},
		rate: 2700, calls: 400_000, faulty: after(60 * second), short: 1.5},
	{name: "20 queues at 90% load that stop cancelled work", law: queued,
		servers: servers{count: 20, workers: 4, stop: true}, rate: 2700, calls: 200_000},
	{name: "one queue at 95% load",
		law:     ofRequest(func(_, a *rand.Rand) float64 { return 8 * a.ExpFloat64() }),
		servers: servers{count: 1, workers: 4}, rate: 475, calls: 100_000,
		faulty: after(60 * second)},
}

// queued is the service time of the bench's fleets.
func queued(seed, id uint64, attempt int, _ time.Duration) time.Duration {
	a := simulation.Generator(seed, id, attempt)
	d := 20 * math.Exp(.5*a.NormFloat64())
	if chanceOf(a, .02) {
		d *= 10
	}
	return inMillis(d)
}

func after(from time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at >= from }
}

// breathing changes the speed of all backends at the interval every, independently of hedges. 8% of
// attempts take 200 ms more.
func breathing(every time.Duration) attemptDistribution {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		a := simulation.Generator(seed, id, attempt)
		d := healthy(a) * math.Exp(simulation.Generator(seed^77, uint64(at/every), 99).NormFloat64())
		if chanceOf(a, .08) {
			d += 200
		}
		return inMillis(d)
	}
}

// batches gives consecutive requests the same size, so that they are slow together. 8% of attempts
// take 200 ms more.
func batches(requests uint64) attemptDistribution {
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		a := simulation.Generator(seed, id, attempt)
		d := healthy(a) * math.Exp(.5*simulation.Generator(seed^77, id/requests, 99).NormFloat64())
		if chanceOf(a, .08) {
			d += 200
		}
		return inMillis(d)
	}
}

// outages adds the latency of a healthy attempt to all attempts, and twenty times that during an
// outage of the given length in each period.
func outages(length, period time.Duration) attemptDistribution {
	one, calm := sick(8, plainly, slower(100)), beside(length, period)
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := healthy(simulation.Generator(seed+1, id, attempt))
		if !calm(at) {
			d *= 20
		}
		return one(seed, id, attempt, at) + inMillis(d)
	}
}

// beside reports whether a call begins outside of outages.
func beside(length, period time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at%period < period/2 || at%period > period/2+length }
}

// drawnWorld returns the world drawn by a seed.
func drawnWorld(seed uint64) world {
	r := simulation.Generator(seed, 11, 11)
	w := world{
		rate: math.Round(math.Pow(10, 3.7*r.Float64())), calls: 40_000,
		budget: []float64{2, 5, 10, 10, 20, 30}[r.IntN(6)],
	}
	backends, sigma, usual := 3+r.IntN(8), .2+.4*r.Float64(), plainly
	name := []string{fmt.Sprintf("drawn %d: %v/s, budget %v%%, %d backends", seed, w.rate, w.budget, backends)}
	switch r.IntN(3) {
	case 0:
		sigma += .2
		usual = sized(sigma)
		name = append(name, fmt.Sprintf("sizes of sigma %.1f", sigma))
	default:
		usual = func(_, a *rand.Rand) float64 { return 5 * math.Exp(sigma*a.NormFloat64()) }
	}
	slow := math.Round(20 * math.Pow(10, 2*r.Float64()))
	var fault func(int, time.Duration, float64) float64
	switch r.IntN(5) {
	case 0:
		fault = slower(slow)
		name = append(name, fmt.Sprintf("one %v ms slower", slow))
	case 1:
		period := time.Duration(20+r.IntN(60)) * second
		length := time.Duration(.02 + .4*r.Float64()*float64(period)).Round(100 * ms)
		fault, w.calls = frozen(length, period), max(w.calls, min(int(4*period.Seconds()*w.rate), 100_000))
		w.faulty = within(length, period)
		w.chance = w.rate*length.Seconds()*float64(w.calls)/(w.rate*period.Seconds()) < 20_000
		name = append(name, fmt.Sprintf("one frozen %v in %v", length, period))
	case 2:
		share := .01 + .2*r.Float64()
		inner := usual
		usual = func(r, a *rand.Rand) float64 {
			if chanceOf(a, share) {
				return slow + inner(r, a)
			}
			return inner(r, a)
		}
		fault = func(_ int, _ time.Duration, d float64) float64 { return d }
		name = append(name, fmt.Sprintf("%.0f%% of attempts %v ms slower", 100*share, slow))
	case 3:
		period, times := time.Duration(60+r.IntN(120))*second, 3+7*r.Float64()
		fault = func(backend int, at time.Duration, d float64) float64 {
			if backend == 0 {
				d *= 1 + (times-1)*float64(at%period)/float64(period)
			}
			return d
		}
		name = append(name, fmt.Sprintf("one becomes %.0f times slower in %v, again and again", times, period))
	case 4:
		period := time.Duration(60+r.IntN(120)) * second
		fault = func(backend int, at time.Duration, d float64) float64 {
			d *= 1 + float64(at%period)/float64(period) // a ramp for all backends
			if backend == 0 && at%(2*period) >= period {
				d += slow
			}
			return d
		}
		name = append(name,
			fmt.Sprintf("all twice as slow in %v, and one %v ms slower each other time", period, slow))
	}
	if r.IntN(4) == 0 {
		w.deadline = time.Duration(50*math.Pow(10, r.Float64()*1.5)) * ms
		name = append(name, fmt.Sprintf("deadline %v", w.deadline))
	}
	w.law, w.name = sick(backends, usual, fault), strings.Join(name, ", ")
	w.chance = w.chance || w.rate < 10
	w.short = fallsShort[seed]
	return w
}

// fallsShort bounds the ratio to the best in the drawn worlds, by seed, in which the trigger falls
// short. In most of them the share of slow calls is nearly the budget.
var fallsShort = map[uint64]float64{0: 1.2, 2: 1.3, 3: 1.15, 4: 20, 9: 1.4, 13: 6, 14: 1.3, 18: 4.5, 21: 1.35}

// run returns the sorted latencies of the judged calls, in ms, and the load.
func (w world) run(seed uint64, p policy) (took []float64, extra float64) {
	c := config()
	c.BudgetPercent = cmp.Or(w.budget, 10)
	sim := client{
		distribution: w.law, calls: cmp.Or(w.calls, 40_000), rate: w.rate, seed: seed, config: c,
		deadline: w.deadline, servers: w.servers,
	}.under(p, 5)
	if !longtest.Long() && w.faulty == nil {
		sim.calls = min(sim.calls, 15_000)
	}
	done, took := sim.run().judged(w.faulty)
	return took, load(done)
}

// measures returns p90, p95, p99, p99.9 and the mean of sorted values. A percentile with fewer than
// ten values beyond it is NaN.
func measures(sorted []float64) (m [5]float64) {
	for i, q := range []float64{.9, .95, .99, .999} {
		m[i] = math.NaN()
		if n := float64(len(sorted)); n*(1-q) >= 10 {
			m[i] = sorted[int(q*n)]
		}
	}
	for _, x := range sorted {
		m[4] += x / float64(len(sorted))
	}
	return m
}

// compare returns the ratio of the trigger to the best simpler policy, by measure, and a table row.
func (w world) compare(seeds uint64) (behind [5]float64, row string) {
	c := compare(func(p policy) (m [][5]float64, extra float64) {
		m = make([][5]float64, 1)
		for seed := uint64(1); seed <= seeds; seed++ {
			took, load := w.run(seed, p)
			for i, x := range measures(took) {
				m[0][i] += x / float64(seeds)
			}
			extra += load / float64(seeds)
		}
		return m, extra
	})
	row = fmt.Sprintf("| %s |", w.name)
	for i, x := range c.auto[0] {
		behind[i] = x / c.best[0][i]
		if math.IsNaN(behind[i]) {
			row += " – |"
			continue
		}
		name := c.names[i].name
		if medians := c.names[i].medians; medians > 0 {
			name = fmt.Sprintf("%v ms", 5*medians)
		}
		row += fmt.Sprintf(" %s → %s %s, %.2f |", short(c.plain[0][i]), short(c.best[0][i]), name, behind[i])
	}
	return behind, row + fmt.Sprintf(" %.1f%% |", c.load)
}

// short formats a number with three digits.
func short(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// TestAuto_AsGoodAsAFixedDelay compares the trigger with plain calls, two percentiles and three
// fixed delays with the same budget, during the fault.
func TestAuto_AsGoodAsAFixedDelay(t *testing.T) {
	longtest.Computation(t)
	worlds := slices.Clone(knownWorlds)
	for seed := range uint64(24) {
		w := drawnWorld(seed)
		w.quick = seed < 2
		worlds = append(worlds, w)
	}
	for _, w := range worlds {
		if !longtest.Long() && !w.quick {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			behind, row := w.compare(uint64(longtest.Size(1, 2)))
			t.Log(row)
			most := cmp.Or(w.short, 1.10)
			if w.short == 0 && (w.chance || !longtest.Long()) { // the short form has fewer calls
				most = 1.25
			}
			for i, name := range []string{"p90", "p95", "p99", "p99.9", "mean"} {
				if behind[i] > most {
					t.Errorf("%s: %.2f times the best, want at most %.2f", name, behind[i], most)
				}
			}
		})
	}
}
