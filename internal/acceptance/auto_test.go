package acceptance_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
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
	seeds   int // in the long tier; 0: 5
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

// perSecond is the greatest load of a second.
func perSecond(hedged simulation.Calls, _ func() simulation.Calls) (most float64) {
	for at := hedged[0].At.Truncate(time.Second); at < hedged[len(hedged)-1].At; at += time.Second {
		most = max(most, load(hedged.Between(at, at+time.Second), nil))
	}
	return most
}

func millis(d time.Duration) float64 { return float64(d) / float64(ms) }

func distributed(t *testing.T, name string) func(uint64) simulation.Latency {
	return of(testserver.DistributionT(t, name))
}

func of(d testserver.Distribution) func(uint64) simulation.Latency {
	return func(seed uint64) simulation.Latency { return simulation.Drawing(d, seed) }
}

// slower has all attempts take a second longer from one time to another.
func slower(d testserver.Distribution, from, to time.Duration) func(uint64) simulation.Latency {
	return func(seed uint64) simulation.Latency {
		draw := simulation.Drawing(d, seed)
		return func(id uint64, attempt int, at time.Duration) time.Duration {
			if at >= from && at < to {
				return draw(id, attempt, at) + time.Second
			}
			return draw(id, attempt, at)
		}
	}
}

// courses compare the trigger's results with the best possible results, and with the latency
// without hedging.
func courses(t *testing.T) []course {
	const s = time.Second
	closed := simulation.Client{Calls: calls, Concurrency: 20}
	open := func(rate float64, calls int) simulation.Client { return simulation.Client{Calls: calls, Rate: rate} }
	queue := func(mean time.Duration, offered float64) simulation.Client { // four workers
		return simulation.Client{Calls: calls, Rate: offered * 4 / mean.Seconds(), Workers: 4}
	}
	longQueue := queue(9440*time.Microsecond, 0.70) // 8 ms · (1 + 9·2%)
	longQueue.Calls *= 5
	straggler := testserver.DistributionT(t, "straggler")
	scaled := func(base time.Duration) testserver.Distribution {
		return testserver.Straggler(testserver.LogNormal(base, base*2/5), 0.05, 10)
	}
	all := func(what string, f figure, most float64) bound { return bound{what, f, 0, whole, most} }
	loadOf := func(most float64) bound { return all("load", load, most) }
	list := []course{
		// The bounds of percentiles are a little above the result of the best policy of its kind
		// with knowledge of the distribution.
		{name: "straggler", short: true, latency: distributed(t, "straggler"), client: closed, budget: 10,
			bounds: []bound{all("p99", p(0.99), 17.4), all("p99.9", p(0.999), 27.4), loadOf(10)}},
		{name: "ttft", short: true, latency: distributed(t, "ttft"), client: closed, budget: 30, hedges: 3,
			bounds: []bound{all("p95", p(0.95), 46), all("p99", p(0.99), 75), loadOf(30)}},
		{name: "grpc-java", latency: distributed(t, "grpc-java"), client: closed, budget: 15,
			bounds: []bound{all("p95", p(0.95), 12), all("p99", p(0.99), 25), loadOf(15)}},
		{name: "slow-one-percent", latency: distributed(t, "slow-one-percent"), client: closed, budget: 5,
			bounds: []bound{all("p99", p(0.99), 22.5), all("p99.9", p(0.999), 34), loadOf(5)}},
		{name: "pareto", latency: distributed(t, "pareto"), client: closed, budget: 10,
			bounds: []bound{all("p99", p(0.99), 25), all("p99.9", p(0.999), 40), loadOf(10)}},

		// One request in ten is slow at every backend: a hedge gains little, and one for each such
		// request costs nine tenths of the budget.
		{name: "correlated", latency: func(seed uint64) simulation.Latency {
			usual, heavy := testserver.LogNormal(5*ms, 2*ms), testserver.LogNormal(60*ms, 10*ms)
			return func(id uint64, attempt int, at time.Duration) time.Duration {
				if simulation.Generator(seed, id, -1).IntN(10) == 0 {
					return heavy.Draw(simulation.Generator(seed, id, attempt))
				}
				return usual.Draw(simulation.Generator(seed, id, attempt))
			}
		}, client: closed, budget: 10, bounds: []bound{
			{"p99 by none's", byNone(0.99), 2 * s, whole, 1.02},
			{"load without a gain", func(hedged simulation.Calls, plain func() simulation.Calls) float64 {
				if byNone(0.99)(hedged, plain) > 0.95 {
					return load(hedged, plain)
				}
				return 0
			}, 2 * s, whole, 2}}},

		// The server's own queue is what makes calls slow. A hedge gains little there, and costs
		// little where it leaves the queue when the primary answers: no call may become slower.
		{name: "saturated", latency: of(testserver.Exponential(8 * ms)), client: queue(8*ms, 0.95), budget: 10,
			bounds: []bound{
				all("p50 by none's", byNone(0.50), 1.05), all("p99 by none's", byNone(0.99), 1.05), {"load",
					load, 10 * s, whole, 7},
				all("time for all by none's", func(hedged simulation.Calls, plain func() simulation.Calls) float64 {
					last := func(calls simulation.Calls) (end time.Duration) {
						for _, c := range calls {
							end = max(end, c.At+c.Took)
						}
						return end
					}
					return float64(last(hedged)) / float64(last(plain()))
				}, 1.05)}},
		// The queue is long or short by chance, so that it takes many calls to say something.
		{name: "queue with stragglers",
			latency: of(testserver.Straggler(testserver.Exponential(8*ms), 0.02, 10)), client: longQueue, budget: 10,
			bounds: []bound{all("p99 by none's", byNone(0.99), 0.95)}},

		// Calls that began just before the outage are hedged in its first instants: two hedges from
		// savings and one for each of a few wins.
		{name: "outage", latency: slower(straggler, 30*s, 60*s), client: open(500, 90*500), budget: 10, bounds: []bound{
			{"hedges beyond what was earned", func(hedged simulation.Calls, _ func() simulation.Calls) (most float64) {
				for at := 30 * s; at < 60*s; at += s {
					most = max(most, float64(hedged.Between(at, at+s).Hedges())-0.1*float64(len(hedged.Between(at-2*s, at+s))))
				}
				return most
			}, 28 * s, 60 * s, 5},
			{"load in a second", perSecond, 36 * s, 60 * s, 2},
			{"p99 after it by that before", func(hedged simulation.Calls, _ func() simulation.Calls) float64 {
				return float64(hedged.Between(70*s, 85*s).Tail(0.99)) / float64(hedged.Between(15*s, 30*s).Tail(0.99))
			}, 0, whole, 1.15}}},

		// The distribution of 20 ms has four times the latencies of the one of 5 ms. The best policy
		// reaches 16.1 ms.
		{name: "shift", latency: func(seed uint64) simulation.Latency {
			return func(id uint64, attempt int, at time.Duration) time.Duration {
				return scaled([]time.Duration{5 * ms, 20 * ms, 5 * ms}[min(int(at/(30*s)), 2)]).Draw(
					simulation.Generator(seed, id, attempt))
			}
		}, client: open(500, 90*500), budget: 10, bounds: []bound{
			{"p99", p(0.99), 10 * s, 30 * s, 1.25 * 16.1}, {"p99", p(0.99), 40 * s, 60 * s, 1.25 * 4 * 16.1}, {
				"p99", p(0.99), 70 * s, 90 * s, 1.25 * 16.1},
			{"load", load, 10 * s, 30 * s, 12}, {"load", load, 40 * s, 60 * s, 12}, {"load", load, 70 * s, 90 * s, 12}}},

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
		// primary: for a while, or for good.
		{name: "steady", short: true, latency: of(testserver.LogNormal(20*ms, 200*time.Microsecond)),
			client: simulation.Client{Calls: 80_000, Concurrency: 20}, budget: 10,
			bounds: []bound{{"load", load, 60 * s, whole, 1}}},
		{name: "no faster the second time", short: true, latency: func(seed uint64) simulation.Latency {
			return func(id uint64, attempt int, at time.Duration) time.Duration {
				return simulation.Drawing(scaled(5*ms), seed)(id, 0, at) + time.Duration(min(attempt, 1))*ms
			}
		}, client: simulation.Client{Calls: 80_000, Concurrency: 20}, budget: 10,
			bounds: []bound{{"load", load, 22 * s, whole, 1}}},
		// Half a minute after hedges have become useful again, most of their gain is back, and
		// after some minutes all of it.
		{name: "of use again", seeds: 3, latency: func(seed uint64) simulation.Latency {
			draw := simulation.Drawing(straggler, seed)
			return func(id uint64, attempt int, at time.Duration) time.Duration {
				if at < time.Minute {
					attempt = 0 // as slow as the primary was
				}
				return draw(id, attempt, at)
			}
		}, client: open(500, 300*500), budget: 10, bounds: []bound{
			{"load", load, 45 * s, 60 * s, 1}, {"p99 by none's", byNone(0.99), 90 * s, 150 * s, 0.75}, {
				"p99 by none's", byNone(0.99), 240 * s, 299 * s, 0.3},
			{"calls without a hedge", func(hedged simulation.Calls, _ func() simulation.Calls) float64 {
				return 100 - load(hedged, nil)
			}, 240 * s, 299 * s, 94}}},

		// Requests that differ and slow calls that come in bunches. More of them, and more seeds,
		// are in internal/trigger.
		{name: "sizes", short: true, latency: sizes, client: open(500, calls), budget: 10,
			bounds: []bound{all("p99 by none's", byNone(0.99), 0.30), loadOf(10.5)}},
		{name: "stalls at 500/s", latency: stalls, client: open(500, calls), budget: 10,
			bounds: []bound{all("p99 by none's", byNone(0.99), 0.05), loadOf(10.5)}},
	}
	// At rates at which two seconds earn one hedge or less, a minute of outage.
	for _, rate := range []float64{1, 5} {
		list = append(list, course{name: fmt.Sprintf("outage at %v/s", rate),
			latency: slower(trickle, 10*time.Minute, 11*time.Minute), client: open(rate, int(rate*720)), budget: 10,
			bounds: []bound{{"hedges beyond the share", func(hedged simulation.Calls, _ func() simulation.Calls) float64 {
				return float64(hedged.Hedges()) - 0.1*float64(len(hedged))
			}, 10 * time.Minute, 11 * time.Minute, 3}}})
	}
	// The same distribution a thousand times slower and a few times faster, with nothing
	// configured. Where calls are few the bucket holds a single token, and of two stragglers in a
	// row one has to do without. The least delay is 1 ms, nearly the fastest median.
	for i, tc := range []struct {
		base  time.Duration
		rate  float64
		calls int
		most  float64
	}{{5 * ms, 1, 5000, 0.90}, {s, 1, 5000, 0.80}, {5 * ms, 10, 20_000, 0.55}, {ms, 5000, 60_000, 0.45}, {10 * s,
		20, 40_000, 0.35}} {
		list = append(list, course{name: fmt.Sprintf("%v at %v/s", tc.base, tc.rate), short: i == 0,
			latency: of(scaled(tc.base)), client: open(tc.rate, tc.calls), budget: 10,
			bounds: []bound{{"p99 by none's", byNone(0.99), 0, 1000 * whole, tc.most}, {"load", load, 0, 1000 * whole, 10.5}}})
	}
	return list
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
			for seed := range longtest.Size(1, cmp.Or(c.seeds, 5)) {
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

// ofRequest is a distribution in ms with a part that each attempt of a request has in common, drawn
// from r, and one of its own, from a.
func ofRequest(draw func(r, a *rand.Rand) float64) func(seed uint64) simulation.Latency {
	return func(seed uint64) simulation.Latency {
		return func(id uint64, attempt int, _ time.Duration) time.Duration {
			return time.Duration(draw(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt)) * float64(ms))
		}
	}
}

// sizes lets the request decide most of the latency; 2% of attempts stall.
var sizes = ofRequest(func(r, a *rand.Rand) float64 {
	d := 5*math.Exp(r.NormFloat64()) + a.ExpFloat64()
	if a.Float64() < 0.02 {
		d += 200
	}
	return d
})

// stalls stalls one of three backends for a second in every five, in turn; a hedge goes to another.
func stalls(seed uint64) simulation.Latency {
	return func(id uint64, attempt int, at time.Duration) time.Duration {
		d := time.Duration(math.Exp(0.5*simulation.Generator(seed, id, attempt).NormFloat64()) * float64(ms))
		backend := (simulation.Generator(seed, id, -2).IntN(3) + attempt) % 3
		if in := at % (5 * time.Second); in < time.Second && backend == int(at/(5*time.Second))%3 {
			d += time.Second - in
		}
		return d
	}
}
