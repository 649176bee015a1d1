package acceptance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/stats"
)

const (
	calls    = 20_500
	warmedUp = 500 // calls that are not looked at
)

func auto(budgetPercent float64, hedges int) []hedge.Option {
	return []hedge.Option{
		hedge.WithTrigger(hedge.Auto()), hedge.WithBudgetPercent(budgetPercent), hedge.WithMaxHedges(hedges),
	}
}

// eachSeed runs what is to hold for every seed, and logs the worst of each figure.
func eachSeed(t *testing.T, check func(seed uint64) map[string]float64) {
	t.Helper()
	worst := map[string]float64{}
	seeds := longtest.Size(1, 5)
	for seed := range uint64(seeds) {
		for name, value := range check(seed + 1) {
			worst[name] = max(worst[name], value)
		}
	}
	t.Logf("worst of %d seeds: %v", seeds, worst)
}

// most fails the test where a figure is above its bound.
func most(t *testing.T, seed uint64, name string, got, bound float64) {
	t.Helper()
	if !(got <= bound) {
		t.Errorf("seed %d: %s is %.4g, want at most %.4g", seed, name, got, bound)
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// TestAuto_Tail holds what the trigger reaches against what is possible: the bounds are a little above what the best
// policy of its kind reaches that knows the distribution.
func TestAuto_Tail(t *testing.T) {
	longtest.Simulation(t)
	type bounds struct {
		distribution     string
		budget           float64
		hedges           int
		p95, p99, p99ten float64 // ms; 0: not bounded
	}
	for _, tc := range longtest.First(2, []bounds{
		{distribution: "straggler", budget: 10, hedges: 2, p99: 17.4, p99ten: 27.4},
		{distribution: "ttft", budget: 30, hedges: 3, p95: 46, p99: 75},
		{distribution: "grpc-java", budget: 15, hedges: 2, p95: 12, p99: 25},
		{distribution: "grpc-java", budget: 20, hedges: 3, p99ten: 60},
		{distribution: "slow-one-percent", budget: 5, hedges: 2, p99: 22.5, p99ten: 34},
		{distribution: "pareto", budget: 10, hedges: 2, p99: 25, p99ten: 40},
	}) {
		t.Run(fmt.Sprintf("%s, budget %v%%", tc.distribution, tc.budget), func(t *testing.T) {
			eachSeed(t, func(seed uint64) map[string]float64 {
				ended, _ := simulation{
					distribution: drawing(testserver.DistributionT(t, tc.distribution), seed), calls: calls, concurrency: 20, seed: seed, options: auto(tc.budget, tc.hedges),
				}.run(t)
				ended = ended[warmedUp:]
				got := map[string]float64{
					"p95": millis(tail(ended, 0.95)), "p99": millis(tail(ended, 0.99)), "p99.9": millis(tail(ended, 0.999)), "load": 100 * load(ended),
				}
				for name, bound := range map[string]float64{"p95": tc.p95, "p99": tc.p99, "p99.9": tc.p99ten, "load": tc.budget} {
					if bound > 0 {
						most(t, seed, name, got[name], bound)
					}
				}
				return got
			})
		})
	}
}

// TestAuto_NoWorseThanPercentile compares with the 90th percentile at the same budget. That spends all of the budget, also where
// most of it saves little: the trigger sends a quarter of its hedges in slow-one-percent.
func TestAuto_NoWorseThanPercentile(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for _, tc := range []struct {
		distribution string
		budget       float64
		bound        float64
	}{
		{"straggler", 10, 1.03},
		{"ttft", 10, 1.09},
		{"ttft", 30, 1.03},
		{"grpc-java", 15, 1.03},
		{"slow-one-percent", 5, 1.15},
		{"pareto", 10, 1.03},
	} {
		t.Run(fmt.Sprintf("%s, budget %v%%", tc.distribution, tc.budget), func(t *testing.T) {
			eachSeed(t, func(seed uint64) map[string]float64 {
				p99 := func(trigger hedge.Trigger) float64 {
					ended, _ := simulation{
						distribution: drawing(testserver.DistributionT(t, tc.distribution), seed), calls: calls, concurrency: 20, seed: seed,
						options: append(auto(tc.budget, 2), hedge.WithTrigger(trigger)),
					}.run(t)
					return millis(tail(ended[warmedUp:], 0.99))
				}
				ratio := p99(hedge.Auto()) / p99(hedge.Percentile(0.90))
				most(t, seed, "p99 by that of the percentile", ratio, tc.bound)
				return map[string]float64{"ratio": ratio}
			})
		})
	}
}

// TestAuto_Mixed has a fast method with stragglers and a slow one without share a target and its budget.
func TestAuto_Mixed(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	fast := testserver.Straggler(testserver.LogNormal(2*ms, 500*time.Microsecond), 0.02, 20)
	slow := testserver.LogNormal(200*ms, 40*ms)
	eachSeed(t, func(seed uint64) map[string]float64 {
		of := func(methods int, pick func(id uint64) testserver.Distribution) []outcome {
			ended, _ := simulation{
				distribution: func(id uint64, attempt int, _ time.Duration) time.Duration {
					return pick(id).Draw(generator(seed, id, attempt))
				},
				calls: calls, concurrency: 20, seed: seed, methods: methods, options: auto(10, 2),
			}.run(t)
			return ended[warmedUp:]
		}
		alone := []float64{
			millis(tail(of(1, func(uint64) testserver.Distribution { return fast }), 0.99)),
			millis(tail(of(1, func(uint64) testserver.Distribution { return slow }), 0.99)),
		}
		both := of(2, func(id uint64) testserver.Distribution { return []testserver.Distribution{fast, slow}[id%2] })
		split := [2][]outcome{}
		for _, c := range both {
			split[c.id%2] = append(split[c.id%2], c)
		}
		got := map[string]float64{"load": 100 * load(both)}
		for i, name := range []string{"fast", "slow"} {
			got[name] = millis(tail(split[i], 0.99)) / alone[i]
			most(t, seed, "p99 of the "+name+" method by that of itself alone", got[name], 1.15)
		}
		most(t, seed, "load", got["load"], 10)
		return got
	})
}

// TestAuto_Correlated lets one request in ten be slow whoever serves it: a hedge is of little use, and one that is sent
// to every such request costs nine tenths of the budget.
func TestAuto_Correlated(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	usual, heavy := testserver.LogNormal(5*ms, 2*ms), testserver.LogNormal(60*ms, 10*ms)
	eachSeed(t, func(seed uint64) map[string]float64 {
		of := func(hedges int) []outcome {
			ended, _ := simulation{
				distribution: func(id uint64, attempt int, _ time.Duration) time.Duration {
					if generator(seed, id, -1).IntN(10) == 0 {
						return heavy.Draw(generator(seed, id, attempt))
					}
					return usual.Draw(generator(seed, id, attempt))
				},
				calls: calls, concurrency: 20, seed: seed, options: auto(10, hedges),
			}.run(t)
			return ended[5000:]
		}
		plain, hedged := of(0), of(2)
		got := map[string]float64{"p99 by none's": float64(tail(hedged, 0.99)) / float64(tail(plain, 0.99)), "load": 100 * load(hedged)}
		most(t, seed, "p99 by that of none", got["p99 by none's"], 1.02)
		if got["p99 by none's"] > 0.95 {
			most(t, seed, "load", got["load"], 2)
		}
		return got
	})
}

// saturated is a server of four workers that serve attempts in the order in which they come.
func saturated(t *testing.T, service testserver.Distribution, mean time.Duration, offered float64, hedges int, seed uint64) ([]outcome, []stats.Method) {
	rate := offered * 4 / mean.Seconds()
	return simulation{
		distribution: drawing(service, seed), calls: calls, rate: rate, workers: 4, seed: seed, options: auto(10, hedges),
	}.run(t)
}

// TestAuto_Saturated lets the server's own queue be what makes calls slow. A hedge gains little there, and costs little where it
// leaves the queue when the primary answers: nobody may wait longer for it.
func TestAuto_Saturated(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	eachSeed(t, func(seed uint64) map[string]float64 {
		after := func(calls []outcome) []outcome {
			for i, c := range calls {
				if c.at > 10*time.Second {
					return calls[i:]
				}
			}
			return nil
		}
		all := [2][]outcome{}
		for i, hedges := range []int{0, 2} {
			all[i], _ = saturated(t, testserver.Exponential(8*ms), 8*ms, 0.95, hedges, seed)
		}
		got := map[string]float64{"load": 100 * load(after(all[1]))}
		for _, q := range []float64{0.50, 0.99} {
			name := fmt.Sprintf("p%v", 100*q)
			got[name] = float64(tail(all[1][warmedUp:], q)) / float64(tail(all[0][warmedUp:], q))
			most(t, seed, name+" by that of none", got[name], 1.05)
		}
		last := func(calls []outcome) float64 {
			end := time.Duration(0)
			for _, c := range calls {
				end = max(end, c.at+c.took)
			}
			return end.Seconds()
		}
		got["time for all"] = last(all[1]) / last(all[0])
		most(t, seed, "time for all calls by that of none", got["time for all"], 1.05)
		most(t, seed, "load", got["load"], 7)
		return got
	})
}

// TestAuto_QueueWithStragglers lets hedges pay off in spite of the queue. The queue is long or short by chance, and which attempt
// it takes of those that come at the same instant is chance as well. So one seed says little, and the calls of all are looked
// at together.
func TestAuto_QueueWithStragglers(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	service := testserver.Straggler(testserver.Exponential(8*ms), 0.02, 10)
	const mean = 9440 * time.Microsecond // 8 ms · (1 + 9·2%)
	var plain, hedged []outcome
	eachSeed(t, func(seed uint64) map[string]float64 {
		without, _ := saturated(t, service, mean, 0.70, 0, seed)
		with, _ := saturated(t, service, mean, 0.70, 2, seed)
		plain, hedged = append(plain, without[warmedUp:]...), append(hedged, with[warmedUp:]...)
		return map[string]float64{"load": 100 * load(with)}
	})
	share := float64(tail(hedged, 0.99)) / float64(tail(plain, 0.99))
	t.Logf("p99 %.3f of none's", share)
	if share > 0.95 {
		t.Errorf("p99 is %.3f of none's, want at most 0.95", share)
	}
}

// perSecond returns the calls that began in each second.
func perSecond(calls []outcome) [][]outcome {
	var seconds [][]outcome
	for _, c := range calls {
		second := int(c.at / time.Second)
		for len(seconds) <= second {
			seconds = append(seconds, nil)
		}
		seconds[second] = append(seconds[second], c)
	}
	return seconds
}

// TestAuto_Outage lets every call take a second longer for 30 of 90 seconds.
func TestAuto_Outage(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	const rate = 500
	normal := straggler(t)
	eachSeed(t, func(seed uint64) map[string]float64 {
		run := func(hedges int) [][]outcome {
			draw := drawing(normal, seed)
			ended, _ := simulation{
				distribution: func(id uint64, attempt int, at time.Duration) time.Duration {
					d := draw(id, attempt, at)
					if at >= 30*time.Second && at < 60*time.Second {
						d += time.Second
					}
					return d
				},
				calls: 90 * rate, rate: rate, seed: seed, options: auto(10, hedges),
			}.run(t)
			return perSecond(ended)
		}
		seconds := run(2)
		got := map[string]float64{}
		for second := 30; second < 60; second++ {
			extra := 100 * load(seconds[second])
			got["load"] = max(got["load"], extra)
			// The share of this second's calls, what those of the two before earned, two hedges from savings and one for each of a
			// few wins: calls that began just before the outage are hedged in its first instants.
			earned := 0.1*float64(len(seconds[second])+len(seconds[second-1])+len(seconds[second-2])) + 5
			most(t, seed, fmt.Sprintf("load in second %d", second-30), extra, 100*earned/float64(len(seconds[second])))
			if second >= 36 {
				got["load from the seventh second on"] = max(got["load from the seventh second on"], extra)
				most(t, seed, fmt.Sprintf("load in second %d", second-30), extra, 2)
			}
		}
		var before, after []outcome
		for second := 15; second < 30; second++ {
			before = append(before, seconds[second]...)
		}
		for second := 70; second < 85; second++ {
			after = append(after, seconds[second]...)
		}
		got["p99 after by before"] = float64(tail(after, 0.99)) / float64(tail(before, 0.99))
		most(t, seed, "p99 from 10 s after the end, by that before", got["p99 after by before"], 1.15)
		return got
	})
}

// TestAuto_OutageAtFewCalls lets every call take a second longer for a minute, at rates at which two seconds earn one hedge or
// less.
func TestAuto_OutageAtFewCalls(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	const from, to = 10 * time.Minute, 11 * time.Minute
	trickle := testserver.Straggler(testserver.LogNormal(5533*time.Microsecond, 2620*time.Microsecond), 0.05, 8) // median 5 ms, sigma 0.45
	for _, rate := range []float64{1, 5} {
		t.Run(fmt.Sprintf("%v a second", rate), func(t *testing.T) {
			eachSeed(t, func(seed uint64) map[string]float64 {
				draw := drawing(trickle, seed)
				ended, _ := simulation{
					distribution: func(id uint64, attempt int, at time.Duration) time.Duration {
						d := draw(id, attempt, at)
						if at >= from && at < to {
							d += time.Second
						}
						return d
					},
					calls: int(rate * 720), rate: rate, seed: seed, options: auto(10, 2),
				}.run(t)
				calls, hedges := 0.0, 0.0
				for _, c := range ended {
					if c.at >= from && c.at < to {
						calls++
						hedges += float64(c.attempts - 1)
					}
				}
				got := map[string]float64{"hedges beyond the share": hedges - 0.1*calls}
				most(t, seed, "hedges beyond the share", got["hedges beyond the share"], 3)
				return got
			})
		})
	}
}

// TestAuto_Shift lets the base of the distribution go from 5 to 20 ms and back.
func TestAuto_Shift(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	const rate = 500
	scaled := func(base time.Duration) testserver.Distribution {
		return testserver.Straggler(testserver.LogNormal(base, base*2/5), 0.05, 10)
	}
	distributions := []testserver.Distribution{scaled(5 * ms), scaled(20 * ms), scaled(5 * ms)}
	oracle := []float64{16.1, 4 * 16.1, 16.1} // p99, ms; the distribution of 20 ms is that of 5 ms with each latency times four
	eachSeed(t, func(seed uint64) map[string]float64 {
		ended, _ := simulation{
			distribution: func(id uint64, attempt int, at time.Duration) time.Duration {
				return distributions[min(int(at/(30*time.Second)), 2)].Draw(generator(seed, id, attempt))
			},
			calls: 90 * rate, rate: rate, seed: seed, options: auto(10, 2),
		}.run(t)
		seconds := perSecond(ended)
		got := map[string]float64{}
		for regime := range 3 {
			var settled []outcome
			for second := 30*regime + 10; second < min(30*regime+30, len(seconds)); second++ {
				settled = append(settled, seconds[second]...)
			}
			got["load"] = max(got["load"], 100*load(settled))
			ratio := millis(tail(settled, 0.99)) / oracle[regime]
			got["p99 by the oracle's"] = max(got["p99 by the oracle's"], ratio)
			most(t, seed, fmt.Sprintf("load in regime %d", regime), 100*load(settled), 12)
			most(t, seed, fmt.Sprintf("p99 in regime %d by the oracle's", regime), ratio, 1.25)
		}
		return got
	})
}

// TestAuto_SeldomStalls has one backend in three stall for a second in every minute. Between stalls there is nothing to
// gain, and a trigger that had given up would be of no use when the next one comes.
func TestAuto_SeldomStalls(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	const rate = 500
	steady := testserver.Uniform(4*ms, 6*ms)
	eachSeed(t, func(seed uint64) map[string]float64 {
		slow := func(hedges int) (share, extra float64) {
			ended, _ := simulation{
				distribution: func(id uint64, attempt int, at time.Duration) time.Duration {
					random := generator(seed, id, attempt)
					d := steady.Draw(random)
					if in := at % time.Minute; in < time.Second && random.IntN(3) == 0 {
						d += time.Second - in
					}
					return d
				},
				calls: 190 * rate, rate: rate, seed: seed, options: auto(10, hedges),
			}.run(t)
			ended = ended[30*rate:]
			for _, c := range ended {
				if c.took > 100*ms {
					share++
				}
			}
			return share / float64(len(ended)), 100 * load(ended)
		}
		none, _ := slow(0)
		hedged, extra := slow(2)
		got := map[string]float64{"slow by none's": hedged / none, "load": extra}
		most(t, seed, "the share of slow calls by that of none", got["slow by none's"], 0.2)
		most(t, seed, "load", extra, 5)
		return got
	})
}
