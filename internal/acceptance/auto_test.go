package acceptance_test

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

const (
	calls    = 20_500
	warmedUp = 500 // calls that are not looked at
	whole    = time.Hour
)

func auto(budgetPercent float64, hedges int) []hedge.Option {
	return []hedge.Option{
		hedge.WithTrigger(hedge.Auto()), hedge.WithBudgetPercent(budgetPercent), hedge.WithMaxHedges(hedges),
	}
}

// course is a client from a seed, and the bounds of its results.
type course struct {
	name    string
	short   bool // it guards every change; the others are of the long tier
	latency func(seed uint64) simulation.Latency
	client  simulation.Client
	budget  float64
	hedges  int // 0: 2
	bounds  []bound
}

// bound is on a figure of the calls that began within a part of the course.
type bound struct {
	what     string
	figure   figure
	from, to time.Duration
	most     float64
}

// figure is of the calls as they went, and as they go without hedging.
type figure func(hedged simulation.Calls, plain func() simulation.Calls) float64

func p(q float64) figure { // in ms
	return func(hedged simulation.Calls, _ func() simulation.Calls) float64 { return millis(hedged.Tail(q)) }
}

func byNone(q float64) figure {
	return func(hedged simulation.Calls, plain func() simulation.Calls) float64 {
		return float64(hedged.Tail(q)) / float64(plain().Tail(q))
	}
}

func load(hedged simulation.Calls, _ func() simulation.Calls) float64 { return 100 * hedged.Load() }

func millis(d time.Duration) float64 { return float64(d) / float64(ms) }

// courses compare the trigger's results with the best possible results, and with the latency
// without hedging. The simulations of internal/trigger have many more distributions and faults.
func courses(t *testing.T) []course {
	const s = time.Second
	closed := simulation.Client{Calls: calls, Concurrency: 20}
	open := func(rate float64, calls int) simulation.Client { return simulation.Client{Calls: calls, Rate: rate} }
	of := func(d testserver.Distribution) func(uint64) simulation.Latency {
		return func(seed uint64) simulation.Latency { return simulation.Drawing(d, seed) }
	}
	distributed := func(name string) func(uint64) simulation.Latency { return of(testserver.DistributionT(t, name)) }
	stragglers := testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10)
	all := func(what string, f figure, most float64) bound { return bound{what, f, 0, 10 * whole, most} }
	loadOf := func(most float64) bound { return all("load", load, most) }
	return []course{
		// The bounds of percentiles are a little above the result of the best policy of its kind
		// with knowledge of the distribution.
		{name: "straggler", short: true, latency: distributed("straggler"), client: closed, budget: 10,
			bounds: []bound{all("p99", p(0.99), 17.4), all("p99.9", p(0.999), 27.4), loadOf(10)}},
		{name: "ttft", short: true, latency: distributed("ttft"), client: closed, budget: 30, hedges: 3,
			bounds: []bound{all("p95", p(0.95), 46), all("p99", p(0.99), 75), loadOf(30)}},

		// One backend in three stalls for a second in every minute. Between stalls there is nothing
		// to gain, and a trigger that had given up would be of no use when the next one comes.
		{name: "seldom stalls", latency: func(seed uint64) simulation.Latency {
			return func(id uint64, attempt int, at time.Duration) time.Duration {
				random := simulation.Generator(seed, id, attempt)
				d := testserver.Uniform(4*ms, 6*ms).Draw(random)
				if in := at % time.Minute; in < s && random.IntN(3) == 0 {
					d += s - in
				}
				return d
			}
		}, client: open(500, 190*500), budget: 10, bounds: []bound{
			{"slow calls by none's", func(hedged simulation.Calls, plain func() simulation.Calls) float64 {
				return slow(hedged) / slow(plain())
			}, 30 * s, whole, 0.2}, {"load", load, 30 * s, whole, 5}}},

		// Hedging is of no use where all take as long, and where a hedge is no faster than its
		// primary.
		{name: "steady", short: true, latency: of(testserver.LogNormal(20*ms, 200*time.Microsecond)),
			client: simulation.Client{Calls: 80_000, Concurrency: 20}, budget: 10,
			bounds: []bound{{"load", load, 60 * s, whole, 1}}},
		{name: "no faster the second time", short: true, latency: func(seed uint64) simulation.Latency {
			return func(id uint64, attempt int, at time.Duration) time.Duration {
				return simulation.Drawing(stragglers, seed)(id, 0, at) + time.Duration(min(attempt, 1))*ms
			}
		}, client: simulation.Client{Calls: 80_000, Concurrency: 20}, budget: 10,
			bounds: []bound{{"load", load, 22 * s, whole, 1}}},

		// The request decides most of the latency; 2% of attempts stall.
		{name: "sizes", short: true, latency: func(seed uint64) simulation.Latency {
			return func(id uint64, attempt int, _ time.Duration) time.Duration {
				r, a := simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt)
				d := 5*math.Exp(r.NormFloat64()) + a.ExpFloat64()
				if a.Float64() < 0.02 {
					d += 200
				}
				return time.Duration(d * float64(ms))
			}
		}, client: open(500, calls), budget: 10,
			bounds: []bound{all("p99 by none's", byNone(0.99), 0.30), loadOf(10.5)}},

		// Where calls are few the bucket holds a single token, and of two stragglers in a row one has
		// to do without.
		{name: "5ms at 1/s", short: true, latency: of(stragglers), client: open(1, 5000), budget: 10,
			bounds: []bound{all("p99 by none's", byNone(0.99), 0.90), loadOf(10.5)}},
	}
}

func slow(calls simulation.Calls) (n float64) {
	for _, c := range calls {
		if c.Took > 100*ms {
			n++
		}
	}
	return n
}

// TestAuto goes through the courses, and logs each figure.
func TestAuto(t *testing.T) {
	longtest.Simulation(t)
	for _, c := range courses(t) {
		if !c.short && !longtest.Long() {
			continue
		}
		t.Run(fmt.Sprintf("%s, budget %v%%", c.name, c.budget), func(t *testing.T) {
			run := func(seed, hedges int) simulation.Calls {
				c.client.Seed, c.client.Latency, c.client.Options = uint64(seed), c.latency(uint64(seed)), auto(c.budget, hedges)
				calls, _ := c.client.Run(t)
				return calls[warmedUp:]
			}
			for seed := range longtest.Size(1, 5) {
				hedged, plain := run(seed+1, cmp.Or(c.hedges, 2)), sync.OnceValue(func() simulation.Calls { return run(seed+1, 0) })
				for _, b := range c.bounds {
					got := b.figure(hedged.Between(b.from, b.to), func() simulation.Calls { return plain().Between(b.from, b.to) })
					t.Logf("seed %d: %s from %v on: %.4g", seed+1, b.what, b.from, got)
					if !(got <= b.most) {
						t.Errorf("seed %d: %s is %.4g from %v to %v, want at most %.4g", seed+1, b.what, got, b.from, b.to, b.most)
					}
				}
			}
		})
	}
}
