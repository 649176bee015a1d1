package worlds

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// withState is [attempts] with a law that has a state. begin returns the law of one run, which is
// called once for each attempt, in the order in which attempts are sent. r belongs to the run.
func withState(n int, begin func(r *rand.Rand) func(x draw) float64) func(seed uint64) Law {
	return func(seed uint64) Law { return attempts(n, begin(simulation.Generator(seed, 17, 17))) }
}

// inLine adds work, in ms, to a queue with one worker, and returns how long the work waits. The work
// is done even if it is canceled. free is when the worker will have done all work.
func inLine(free *time.Duration, at time.Duration, work float64) (waits float64) {
	waits = max(float64(*free-at)/float64(ms), 0)
	*free = at + inMillis(waits+work)
	return waits
}

// stateful has worlds in which backends or links have a state, most of them one that attempts change.
// The trigger was not tuned on them.
var stateful = []World{
	{
		Name: "20 queues at 90% load that finish cancelled work", Law: queued, Medians: []float64{20},
		Most:    2.5, // hedges delay all calls
		Servers: Servers{Count: 20, Workers: 4, Finish: true}, Rate: 2700, Calls: 400_000, Judged: after(60 * second),
	},
	{
		Name: "a knee: slower in proportion beyond 8 at once, 4 backends, 180/s, 3% × 8", Rate: 180, Medians: []float64{100},
		Most: 1.15,
		Begin: withState(4, func(*rand.Rand) func(draw) float64 {
			var running [4][]time.Duration // when they end
			return func(x draw) float64 {
				b := &running[x.backend]
				*b = slices.DeleteFunc(*b, func(end time.Duration) bool { return end <= x.at })
				d := x.lognormal(90, .4) * (1 + x.chance(.03, 7)) * max(float64(len(*b))/8, 1)
				*b = append(*b, x.at+inMillis(d))
				return d
			}
		}),
	},
	{
		Name: "elections: one of 8 shards waits 2 s in 20, 3% × 10, 60/s", Rate: 60, Medians: []float64{6},
		Law: attempts(3, func(x draw) float64 {
			d := x.lognormal(6, .4) * (1 + x.chance(.03, 9))
			if x.request.IntN(8) == int(x.at/(20*second))%8 {
				d += stalled(x.at%(20*second), 2*second)
			}
			return d
		}),
	},
	{
		Short: true, Name: "caches of 5 backends, 20 s a key, a miss + 60 ms, 200/s", Rate: 200, Medians: []float64{3},
		Most: 1.15,
		Begin: withState(5, func(*rand.Rand) func(draw) float64 {
			type entry struct{ key, backend int }
			until := map[entry]time.Duration{}
			return func(x draw) float64 {
				d := x.lognormal(3, .4)
				e := entry{int(math.Pow(x.request.Float64(), -1/1.3)), x.backend} // Pareto
				if until[e] < x.at {
					d += x.lognormal(60, .3)
				}
				until[e] = x.at + 20*second
				return d
			}
		}),
	},
	{
		Name: "2 zones, 6 ms by day and 70 ms by night, days of 20 min, 2% × 8, 40/s", Rate: 40, Medians: []float64{6},
		Calls: 60_000,
		Law: attempts(4, func(x draw) float64 {
			median := 6.0
			if Chance(x.request, .5-.45*math.Cos(2*math.Pi*x.at.Minutes()/20)) {
				median = 70
			}
			return x.lognormal(median, .3) * (1 + x.chance(.02, 7))
		}),
	},
	{
		Name: "4 servers that serve 30/s each, 20 at once: 60/s, 150/s for 4 s in 40, 2% + 150 ms", Medians: []float64{8},
		Most: 9, // hedges take tokens
		Arrivals: varying(func(at time.Duration) float64 {
			if at%(40*second) < 4*second {
				return 150
			}
			return 60
		}),
		Begin: withState(4, func(*rand.Rand) func(draw) float64 {
			var free [4]time.Duration // when all tokens will be back
			return func(x draw) float64 {
				waits := inLine(&free[x.backend], x.at, 1000./30)
				return max(waits-20*1000./30, 0) + x.lognormal(8, .4) + x.chance(.02, 150)
			}
		}),
	},
	{
		Name: "8 connections close after 20 s, the next call + 120 ms, Pareto arrivals, 1/s", Calls: fewCalls,
		Most:    1.25,
		Medians: []float64{10},
		Arrivals: func(r *rand.Rand, _ time.Duration) time.Duration {
			return inMillis(333 * math.Pow(1-r.Float64(), -1/1.5))
		},
		Begin: withState(8, func(*rand.Rand) func(draw) float64 {
			var closes [8]time.Duration
			return func(x draw) float64 {
				d := x.lognormal(10, .4)
				if closes[x.backend] <= x.at {
					d += 120
				}
				closes[x.backend] = x.at + 20*second
				return d
			}
		}),
	},
	{
		Name: "requests of Pareto sizes share an uplink at 60%, 3% of attempts × 10, 60/s", Rate: 60, Medians: []float64{12},
		Most: 3, // a hedge repeats the upload
		Begin: withState(4, func(*rand.Rand) func(draw) float64 {
			var free time.Duration
			return func(x draw) float64 {
				upload := min(4*math.Pow(1-x.request.Float64(), -1/1.6), 400)
				return inLine(&free, x.at, upload) + upload + x.lognormal(6, .4)*(1+x.chance(.03, 9))
			}
		}),
	},
	{
		Name: "a deploy every 4 min restarts 6 backends in a minute, cold for 100 attempts, 40/s", Rate: 40,
		Most:    1.3,
		Medians: []float64{6}, Calls: 60_000,
		Begin: withState(6, func(*rand.Rand) func(draw) float64 {
			var version, served [6]int
			return func(x draw) float64 {
				b := x.backend
				if v := int((x.at - time.Duration(10*b)*second) / (240 * second)); version[b] != v {
					version[b], served[b] = v, 0
				}
				served[b]++
				return x.lognormal(6, .4) * (1 + 15*math.Exp(-float64(served[b])/50))
			}
		}),
	},
	{
		Name: "others retry: a backlog of 150 ms doubles a backend's load for 3 s, 50/s", Rate: 50, Medians: []float64{8},
		Most: 1.85,
		Begin: withState(5, func(r *rand.Rand) func(draw) float64 {
			type queue struct {
				backlog         float64       // ms
				at, storm, calm time.Duration // computed up to at; until
			}
			var queues [5]queue
			return func(x draw) float64 {
				q := &queues[x.backend]
				for ; q.at < x.at; q.at += 20 * ms {
					load := .6
					switch {
					case q.at < q.storm:
						load = 1.2
					case q.at < q.calm:
						load = .3
					case q.backlog > 150:
						q.storm, q.calm = q.at+3*second, q.at+8*second
					}
					q.backlog = max(q.backlog+20*(load-1), 0) + draw{own: r}.chance(.001, 200*r.ExpFloat64())
				}
				waits := q.backlog
				q.backlog += 5
				return waits + x.lognormal(8, .4)*(1+x.chance(.02, 9))
			}
		}),
	},
	{
		Name: "batches begin each 25 ms and take 15 ms, 4% + 60 ms, 80/s", Rate: 80, Medians: []float64{30},
		Most: 1.15,
		Law: attempts(4, func(x draw) float64 {
			arrives := x.at + inMillis(x.lognormal(3, .4)+x.chance(.04, 60)) + time.Duration(x.backend)*6*ms
			return float64(arrives.Truncate(25*ms)+40*ms-x.at-time.Duration(x.backend)*6*ms) / float64(ms)
		}),
	},
}
