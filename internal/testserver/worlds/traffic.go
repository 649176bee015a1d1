package worlds

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// draw has the inputs to the latency of an attempt. Numbers drawn from request are the same for
// all attempts of a call.
type draw struct {
	request, own *rand.Rand
	id           uint64
	attempt      int
	backend      int
	method       int
	at           time.Duration
}

// skewed chooses a method: the first one that has a number drawn below it.
func skewed(below ...float64) func(seed, id uint64) int {
	return func(seed, id uint64) int {
		x, n := simulation.Generator(seed, id, -4).Float64(), 0
		for n < len(below) && x >= below[n] {
			n++
		}
		return n
	}
}

// attempts is a law, in ms, of attempts that are served by n backends.
func attempts(n int, law func(x draw) float64) Law {
	return perMethod(n, func(_, _ uint64) int { return 0 }, law)
}

func perMethod(n int, method func(seed, id uint64) int, law func(x draw) float64) Law {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		return inMillis(law(draw{
			request: simulation.Generator(seed, id, -1), own: simulation.Generator(seed, id, attempt),
			id: id, attempt: attempt, backend: Backend(seed, id, attempt, n), method: method(seed, id), at: at,
		}))
	}
}

func (x draw) lognormal(median, sigma float64) float64 {
	return median * math.Exp(sigma*x.own.NormFloat64())
}

// chance returns value with the given probability, and otherwise 0.
func (x draw) chance(p, value float64) float64 {
	if Chance(x.own, p) {
		return value
	}
	return 0
}

// phase returns the time since a period began, shifted by a share of it for each backend of n.
func (x draw) phase(period time.Duration, n int) time.Duration {
	return (x.at + time.Duration(x.backend)*period/time.Duration(n)) % period
}

// stalled returns the ms until the end of a stall at the beginning of a period, or 0.
func stalled(in, length time.Duration) float64 { return max(float64(length-in)/float64(ms), 0) }

// varying is Poisson arrivals at the rate of a time.
func varying(rate func(at time.Duration) float64) func(r *rand.Rand, now time.Duration) time.Duration {
	return func(r *rand.Rand, now time.Duration) time.Duration {
		return time.Duration(r.ExpFloat64() / rate(now) * 1e9)
	}
}

// traffic is worlds from real services. The trigger was not tuned on them.
var traffic = []World{
	{
		Name: "a day of 20 minutes, 2 to 60/s, 3% × 15", Medians: []float64{8},
		Arrivals: varying(func(at time.Duration) float64 {
			return 31 - 29*math.Cos(2*math.Pi*at.Minutes()/20)
		}),
		Law: attempts(3, func(x draw) float64 { return x.lognormal(8, .5) * (1 + x.chance(.03, 14)) }),
	},
	{
		Name: "a deploy every 2 min restarts one of 6, × 20 for 5 s, 40/s", Rate: 40, Medians: []float64{6},
		Law: attempts(6, func(x draw) float64 {
			d := x.lognormal(6, .4)
			if x.at%(120*second) < 5*second && x.backend == int(x.at/(120*second))%6 {
				d *= 20
			}
			return d
		}),
	},
	{
		Name: "a cache: 15% of requests miss, + 40 ms, 2% of attempts stall 250 ms, 150/s", Rate: 150, Medians: []float64{2},
		Law: attempts(4, func(x draw) float64 {
			d := x.lognormal(2, .3) + x.chance(.02, 250)
			if Chance(x.request, .15) {
				d += x.lognormal(40, .3)
			}
			return d
		}),
	},
	{
		Name: "zones: 2 of 6 + 8 ms, 1% stalls 400 ms, 60/s", Rate: 60, Medians: []float64{3},
		Law: attempts(6, func(x draw) float64 {
			d := x.lognormal(3, .4) + x.chance(.01, 400)
			if x.backend < 2 {
				d += 8
			}
			return d
		}),
	},
	{
		Name: ".3% loss, RTO 200 ms, .03% 1 s, 4/s", Rate: 4, Medians: []float64{6},
		Law: attempts(3, func(x draw) float64 {
			return x.lognormal(6, .35) + x.chance(.003, 200) + x.chance(.0003, 1000)
		}),
	},
	{
		Name: "bursts of loss: one of 5 loses 30% for 2 s each 20 s, RTO 200 ms, 25/s", Rate: 25, Medians: []float64{5},
		Law: attempts(5, func(x draw) float64 {
			d := x.lognormal(5, .4)
			if x.phase(100*second, 5) < 2*second {
				d += x.chance(.3, 200)
			}
			return d
		}),
	},
	{
		Name: "a canary: one of 20 + 150 ms, 7/s", Rate: 7, Medians: []float64{10},
		Law: attempts(20, func(x draw) float64 {
			d := x.lognormal(10, .4)
			if x.backend == 0 {
				d += 150
			}
			return d
		}),
	},
	{
		Name: "a broken canary: one of 50 + 2 s, 12/s", Rate: 12, Medians: []float64{12},
		Law: attempts(50, func(x draw) float64 {
			d := x.lognormal(12, .5)
			if x.backend == 0 {
				d += 2000
			}
			return d
		}),
	},
	{
		Name: "hot keys: 4% of requests + 60 ms, 1% stalls 120 ms, 300/s", Rate: 300, Medians: []float64{4},
		Law: attempts(4, func(x draw) float64 {
			d := x.lognormal(4, .4) + x.chance(.01, 120)
			if Chance(x.request, .04) {
				d += 60
			}
			return d
		}),
	},
	{
		Name: "fan-out of 20, the longest, 1% × 20, a wave each 400 ms", Gathered: 20, Every: 400 * ms, Longest: 20,
		Medians: []float64{5}, Calls: 120_000,
		Law: attempts(20, func(x draw) float64 { return x.lognormal(5, .4) * (1 + x.chance(.01, 19)) }),
	},
	{
		Name: "fan-out of 8, the longest, one of 8 + 60 ms for 1 s in 20, a wave each second", Gathered: 8, Every: second,
		Longest: 8, Medians: []float64{7}, Calls: 100_000,
		Law: attempts(8, func(x draw) float64 {
			d := x.lognormal(7, .4)
			if x.phase(160*second, 8) < second {
				d += 60
			}
			return d
		}),
	},
	{
		Name: "a closed loop of 8, 3% + 150 ms", Concurrency: 8, Medians: []float64{20},
		Law: attempts(4, func(x draw) float64 { return x.lognormal(20, .3) + x.chance(.03, 150) }),
	},
	{
		Name: "a closed loop of 2, sigma .8", Concurrency: 2, Medians: []float64{30},
		Law: attempts(4, func(x draw) float64 { return x.lognormal(30, .8) }),
	},
	{
		Name: "Pareto 1.3, 80/s", Rate: 80, Medians: []float64{3.4},
		Law: attempts(4, func(x draw) float64 { return 2 * math.Pow(1-x.own.Float64(), -1/1.3) }),
	},
	{
		Name: "Pareto 2.5, 6/s", Rate: 6, Medians: []float64{13.2},
		Law: attempts(4, func(x draw) float64 { return 10 * math.Pow(1-x.own.Float64(), -1/2.5) }),
	},
	{
		Name: "deadline 100 ms, 3% hang, 30/s", Rate: 30, Deadline: 100 * ms, Medians: []float64{8},
		Law: attempts(4, func(x draw) float64 { return x.lognormal(8, .4) + x.chance(.03, 60_000) }),
	},
	{
		Name: "deadline 500 ms, one of 4 freezes 10 s in 90, 15/s", Rate: 15, Deadline: 500 * ms, Medians: []float64{9},
		Law: attempts(4, func(x draw) float64 {
			d := x.lognormal(9, .4)
			if x.backend == 0 {
				d += stalled(x.at%(90*second), 10*second)
			}
			return d
		}),
	},
	{
		Name: "restarts after 800 calls, 4% × 10, 12/s", Rate: 12, Clients: 40, Restarts: true, Calls: 32_000,
		Medians: []float64{7},
		Law:     attempts(4, func(x draw) float64 { return x.lognormal(7, .4) * (1 + x.chance(.04, 9)) }),
	},
	{
		Name: "restarts after 150 calls, 2% + 300 ms, 2/s", Rate: 2, Clients: 100, Restarts: true, Calls: 15_000,
		Medians: []float64{15},
		Law:     attempts(4, func(x draw) float64 { return x.lognormal(15, .4) + x.chance(.02, 300) }),
	},
	{
		Name: "an LLM: 400 ms, 8% long prompts × 4, 3% queue 3 s, 1.5/s", Rate: 1.5, Calls: 15_000, Medians: []float64{400},
		Law: attempts(4, func(x draw) float64 {
			d := 400 * math.Exp(.4*x.request.NormFloat64())
			if Chance(x.request, .08) {
				d *= 4
			}
			return d*math.Exp(.1*x.own.NormFloat64()) + x.chance(.03, 3000)
		}),
	},
	{
		Name: "an LLM: 20% of prefills miss, 150 ms to 2 s, budget 30%, 20/s", Rate: 20, Budget: 30, Medians: []float64{150},
		Law: attempts(4, func(x draw) float64 {
			if Chance(x.own, .2) {
				return x.lognormal(2000, .2)
			}
			return x.lognormal(150, .3)
		}),
	},
	{
		Name: "cron: 3/s, and 150/s for 2 s each minute, 2% + 100 ms", Medians: []float64{6},
		Arrivals: varying(func(at time.Duration) float64 {
			if at%(60*second) < 2*second {
				return 150
			}
			return 3
		}),
		Law: attempts(4, func(x draw) float64 { return x.lognormal(6, .4) + x.chance(.02, 100) }),
	},
	{
		Name: "cron: 10/s, and 500/s for 4 s each 5 min, then all × 3 and 4% + 200 ms", Medians: []float64{5},
		Arrivals: varying(func(at time.Duration) float64 {
			if at%(300*second) < 4*second {
				return 500
			}
			return 10
		}),
		Law: attempts(4, func(x draw) float64 {
			if x.at%(300*second) < 4*second {
				return x.lognormal(15, .4) + x.chance(.04, 200)
			}
			return x.lognormal(5, .4)
		}),
	},
	{
		Name: "GC: each of 5 pauses 150 ms in 7 s, 90/s", Rate: 90, Medians: []float64{4},
		Law: attempts(5, func(x draw) float64 {
			return x.lognormal(4, .4) + stalled(x.phase(7*second, 5), 150*ms)
		}),
	},
	{
		Name: "GC: each of 4 pauses 1.2 s in 45 s, 8/s", Rate: 8, Medians: []float64{11},
		Law: attempts(4, func(x draw) float64 {
			return x.lognormal(11, .4) + stalled(x.phase(45*second, 4), 1200*ms)
		}),
	},
	{
		Name: "a storm: all × 6 for 10 s in 100, one of 5 + 80 ms, 120/s", Rate: 120, Medians: []float64{6},
		Law: attempts(5, func(x draw) float64 {
			d := x.lognormal(6, .5)
			if x.at%(100*second) < 10*second {
				d *= 6
			}
			if x.backend == 0 {
				d += 80
			}
			return d
		}),
	},
	{
		Name: "5 methods, 30/s in all", Rate: 30, Medians: []float64{2, 5, 10, 20, 40},
		Method: skewed(.48, .74, .87, .94), Law: perMethod(4, skewed(.48, .74, .87, .94), func(x draw) float64 {
			m := [5]float64{2, 5, 10, 20, 40}[x.method]
			return x.lognormal(m, .4) * (1 + x.chance([5]float64{.02, 0, .05, .01, 0}[x.method], 14))
		}),
	},
	{
		Name: "batches of 200 ms in 3 of 10 calls, reads of 3 ms with 5% × 30, 9/s", Rate: 9, Medians: []float64{3, 200},
		Method: skewed(.7), Law: perMethod(4, skewed(.7), func(x draw) float64 {
			if x.method == 1 {
				return x.lognormal(200, .3)
			}
			return x.lognormal(3, .4) * (1 + x.chance(.05, 29))
		}),
	},
	{
		Name: "6% × 12, 0.3/s", Rate: .3, Calls: 8_000, Medians: []float64{9},
		Law: attempts(4, func(x draw) float64 { return x.lognormal(9, .4) * (1 + x.chance(.06, 11)) }),
	},
	{
		Name: "one of 7 + 120 ms, 1/s", Rate: 1, Calls: 12_000, Medians: []float64{14},
		Law: attempts(7, func(x draw) float64 {
			d := x.lognormal(14, .4)
			if x.backend == 0 {
				d += 120
			}
			return d
		}),
	},
	{
		Name: "one of 3 stalls 30 s in 5 min, 0.8/s", Rate: .8, Calls: 12_000, Medians: []float64{14},
		Law: attempts(3, func(x draw) float64 {
			d := x.lognormal(14, .4)
			if x.backend == 0 {
				d += stalled(x.at%(300*second), 30*second)
			}
			return d
		}),
	},
	{
		Name: "a lock: 8% of requests wait for 50 ms, jitter 2 ms, 100/s", Rate: 100, Medians: []float64{5},
		Law: attempts(4, func(x draw) float64 {
			d := x.lognormal(3, .3) + 2*x.own.ExpFloat64()
			if Chance(x.request, .08) {
				d += 50 * x.request.ExpFloat64()
			}
			return d
		}),
	},
	{
		Name: "a disk all share: stalls 300 ms in 5 s, 200/s", Rate: 200, Medians: []float64{5},
		Law: attempts(4, func(x draw) float64 {
			return x.lognormal(5, .4) + stalled(x.at%(5*second), 300*ms)
		}),
	},
	{
		Name: "calm, one of 3 stalls 500 ms each minute, 20/s", Rate: 20, Calls: 60_000, Medians: []float64{6},
		Law: attempts(3, func(x draw) float64 {
			return x.lognormal(6, .3) + stalled(x.phase(180*second, 3), 500*ms)
		}),
	},
	{
		Name: "one of 5 + 50 ms for 40 s in 240, 45/s", Rate: 45, Calls: 60_000, Medians: []float64{8},
		Law: attempts(5, func(x draw) float64 {
			d := x.lognormal(8, .4)
			if x.backend == 0 && x.at%(240*second) < 40*second {
				d += 50
			}
			return d
		}),
	},
	{
		Name: ".2% of requests take 2 s, 3% of attempts × 8, 70/s", Rate: 70, Medians: []float64{7},
		Law: attempts(4, func(x draw) float64 {
			d := x.lognormal(7, .4) * (1 + x.chance(.03, 7))
			if Chance(x.request, .002) {
				d += 2000
			}
			return d
		}),
	},
	{
		Name: "one of 6 cold for 2 min in 10, from × 10 on, 35/s", Rate: 35, Calls: 60_000, Medians: []float64{9},
		Law: attempts(6, func(x draw) float64 {
			d := x.lognormal(9, .4)
			if in := x.at % (600 * second); x.backend == 0 && in < 120*second {
				d *= 1 + 9*(1-in.Seconds()/120)
			}
			return d
		}),
	},
	{
		Name: "70% stall for 20 s in 300, hedges elsewhere, budget 30%, 50/s", Rate: 50, Budget: 30, Calls: 45_000,
		Judged:  func(at time.Duration) bool { return at%(300*second) >= 100*second && at%(300*second) < 120*second },
		Medians: []float64{10},
		Law:     attempts(4, elsewhere), Elsewhere: true,
	},
	{
		Name: "70% stall for 20 s in 300, hedges elsewhere, budget 100%, 12/s", Rate: 12, Budget: 100, Calls: 40_000,
		Judged:  func(at time.Duration) bool { return at%(300*second) >= 100*second && at%(300*second) < 120*second },
		Medians: []float64{10},
		Law:     attempts(4, elsewhere), Elsewhere: true,
	},
	{
		Name: "a noisy neighbor: one of 8 + 100 ms for 30% in phases of 5 s, 400/s", Rate: 400, Calls: 60_000,
		Medians: []float64{5},
		Law: attempts(8, func(x draw) float64 {
			d := x.lognormal(5, .4)
			if x.backend == 0 && simulation.Generator(5, uint64(x.at/(5*second)), 98).IntN(3) == 0 {
				d += x.chance(.3, 100)
			}
			return d
		}),
	},
	{
		Name: "10 queues at 60%, 12 clients", Clients: 12, Rate: 1000, Servers: Servers{Count: 10, Workers: 4, Stop: true},
		Calls: 80_000, Medians: []float64{20},
		Law: attempts(10, func(x draw) float64 { return x.lognormal(20, .4) * (1 + x.chance(.02, 9)) }),
	},
	{
		Name: "reconnects: .5% + 90 ms, and 1 s of 60 with + 150 ms, 2.5/s", Rate: 2.5, Calls: 20_000, Medians: []float64{8},
		Law: attempts(4, func(x draw) float64 {
			d := x.lognormal(8, .4) + x.chance(.005, 90)
			if x.phase(240*second, 4) < second {
				d += 150
			}
			return d
		}),
	},
	{
		Name: ".1% stalls 500 ms, 3,000/s", Rate: 3000, Calls: 120_000, Medians: []float64{2},
		Law: attempts(4, func(x draw) float64 { return x.lognormal(2, .3) + x.chance(.0015, 500) }),
	},
}

// elsewhere stalls 70% of primaries for 20 s; hedges go to another destination, which is slower.
func elsewhere(x draw) float64 {
	if x.attempt > 0 {
		return x.lognormal(14, .4)
	}
	d := x.lognormal(10, .4)
	if in := x.at%(300*second) - 100*second; in >= 0 && x.own.Float64() < .7 {
		d += stalled(in, 20*second)
	}
	return d
}
