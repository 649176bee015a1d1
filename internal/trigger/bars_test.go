package trigger_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

func seeds() uint64 { return uint64(longtest.Size(1, 5)) }

// workload is a latency distribution, an arrival pattern, and a bar: p99 with hedging as a share of
// p99 without.
type workload struct {
	name         string
	distribution attemptDistribution
	budget       float64 // percent; 0 is 10
	hedges       int     // 0 is 2
	rate         float64 // calls per second; 0: by concurrency
	concurrency  int
	gathered     int // calls in each burst, one burst per every; replaces the rate
	every        time.Duration
	clients      int     // with few calls each, all of them judged; 0 is one
	calls        int     // of each client; 0 is 40,000
	first        int     // leading calls that are not judged; 0 is warmedUp
	bar          float64 // 0: no bar for this workload
	quick        bool    // simulated even without HEDGE_TESTS
	load         float64 // bound, in percent; 0 is budget + 0.5
}

func (w workload) mostLoad() float64 {
	switch {
	case w.load > 0:
		return w.load
	case w.budget > 0:
		return w.budget + 0.5
	}
	return 10.5
}

const second = time.Second

// realTraffic has distributions in which requests differ, or slow calls are clustered.
var realTraffic = []workload{
	{name: "sizes", distribution: sizes(1, .02, 200), rate: 500, quick: true, bar: .30},
	{name: "heavy+0%", distribution: heavy(0), rate: 500, bar: 1.01},
	{name: "heavy+2%", distribution: heavy(.02), rate: 500, quick: true, bar: .67},
	{name: "heavy+5%", distribution: heavy(.05), rate: 500, bar: .75},
	{name: "stalls at 50/s", distribution: stalls(lognormal(1, .5), 5*second, second), rate: 50, bar: .05},
	{
		name:         "stalls at 500/s",
		distribution: stalls(lognormal(1, .5), 5*second, second),
		rate:         500,
		quick:        true,
		bar:          .05,
	},
	{
		name:         "stalls at 5000/s",
		distribution: stalls(lognormal(1, .5), 5*second, second),
		rate:         5000,
		calls:        150_000,
		bar:          .05,
	},
	{name: "wider sizes", distribution: sizes(1.5, .03, 400), rate: 500, bar: .53},
	{
		name:         "sizes that alternate",
		distribution: alternating(20*second, sizes(1, .02, 200), sizes(1.5, .03, 400)),
		rate:         500,
		bar:          .35,
	},
	{name: "correlated", distribution: correlated(), concurrency: 20, bar: 1.02, load: 2.5},
	{name: "the same again", distribution: again(), concurrency: 20, bar: 1.01, load: 3.5},
	{
		name:         "2 s slower, 500 each minute",
		distribution: sometimes(.05, 2000),
		gathered:     500,
		every:        time.Minute,
		quick:        true,
		bar:          .05,
	},
	{
		name:         "3 s slower, 1000 each minute",
		distribution: sometimes(.05, 3000),
		gathered:     1000,
		every:        time.Minute,
		quick:        true,
		bar:          .05,
	},
	{name: "weak dependence", distribution: ofRequest(func(r, a *rand.Rand) float64 {
		return 8 * math.Exp(0.6*r.NormFloat64()+0.4*a.NormFloat64())
	}), rate: 300, bar: 1},
	{name: "heavy requests", distribution: ofRequest(func(r, a *rand.Rand) float64 {
		d := 3 * math.Pow(1-r.Float64(), -1/2.5)
		if chanceOf(a, .03) {
			d += 60 * a.ExpFloat64()
		}
		return d
	}), rate: 800, bar: .35},
	{name: "two classes", distribution: ofRequest(func(r, a *rand.Rand) float64 {
		d := 2 * math.Exp(.3*a.NormFloat64())
		if chanceOf(r, .3) {
			d = 40 * math.Exp(.3*a.NormFloat64())
		}
		if chanceOf(a, .03) {
			d *= 10
		}
		return d
	}), rate: 500, bar: .97},
	{name: "garbage collection", distribution: stalls(lognormal(6, .4), 2*second, 150*ms), rate: 400, bar: .21},
	{name: "garbage collection and sizes", distribution: stalls(func(r, a *rand.Rand) float64 {
		return 6*math.Exp(.8*r.NormFloat64()) + a.ExpFloat64()
	}, 3*second, 300*ms), rate: 400, bar: .23},
	{name: "lost packets", distribution: ofRequest(func(_, a *rand.Rand) float64 {
		x := a.NormFloat64()
		d := 10 + 3*x*x
		for wait := 200.0; chanceOf(a, .015); wait *= 2 {
			d += wait
		}
		return d
	}), rate: 200, bar: .16},
	{name: "compaction", distribution: compaction(), rate: 500, bar: .80},
}

// compaction makes one of three backends, in turn, eight times slower for 4 s of every 20.
func compaction() attemptDistribution {
	usual := lognormal(4, .5)
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := usual(nil, simulation.Generator(seed, id, attempt))
		if at%(20*second) < 4*second && backend(seed, id, attempt, 3) == int(at/(20*second))%3 {
			d *= 8
		}
		return inMillis(d)
	}
}

// again gives a hedge the latency of its primary plus 1 ms.
func again() attemptDistribution {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := straggler(seed, id, 0, at)
		if attempt > 0 {
			d += ms
		}
		return d
	}
}

func straggler(seed, id uint64, attempt int, _ time.Duration) time.Duration {
	return testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10).
		Draw(simulation.Generator(seed, id, attempt))
}

// run makes the calls of a workload and returns the judged ones.
func (w workload) run(seed uint64, quantile float64) (all []outcome) {
	c := config()
	c.BudgetPercent, c.MaxHedges = cmp.Or(w.budget, 10), cmp.Or(w.hedges, 2)
	calls := cmp.Or(w.calls, 40_000)
	if !longtest.Long() {
		calls = 15_000
	}
	for number := range uint64(max(w.clients, 1)) {
		all = append(all, client{
			distribution: w.distribution, calls: calls, concurrency: w.concurrency, rate: w.rate,
			gathered: w.gathered, every: w.every, seed: seed + number, config: c,
		}.under(quantile).run().done...)
	}
	if w.clients > 0 {
		return all
	}
	return all[cmp.Or(w.first, warmedUp):]
}

const warmedUp = 500

// test compares p99 and load with the bars, for each seed. apart is the distance of the seeds.
func (w workload) test(t *testing.T, apart uint64) {
	worst, most := 0.0, 0.0
	for seed := uint64(1); seed <= seeds(); seed++ {
		hedged := w.run(seed*apart, auto)
		share := tail(hedged, 0.99) / tail(w.run(seed*apart, never), 0.99)
		worst, most = max(worst, share), max(most, load(hedged))
		if share > w.bar {
			t.Errorf("seed %d: p99 is %.3f of none's, want at most %v", seed, share, w.bar)
		}
		if load(hedged) > w.mostLoad() {
			t.Errorf("seed %d: load %.2f%%, want at most %v%%", seed, load(hedged), w.mostLoad())
		}
	}
	t.Logf("worst of %d seeds: p99 %.3f of none's, load %.2f%%", seeds(), worst, most)
}

// TestAuto_RealTraffic covers requests that differ and slow calls that are clustered.
func TestAuto_RealTraffic(t *testing.T) {
	longtest.Simulation(t)
	for _, w := range realTraffic {
		if longtest.Long() || w.quick {
			t.Run(w.name, func(t *testing.T) { w.test(t, 1) })
		}
	}
}
