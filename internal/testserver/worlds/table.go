package worlds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
)

// table has the worlds that are not drawn.
var table = append([]World{
	{Name: "one of 8 backends 100 ms slower", Kind: known, Law: sick(8, plainly, slower(100)), Rate: 500, Short: true},
	{Name: "one of 9 backends 3 s slower", Kind: known, Law: sick(9, plainly, slower(3000)), Rate: 500},
	{Name: "one of 3 backends 100 ms slower", Kind: known, Law: sick(3, plainly, slower(100)), Rate: 500},
	{Name: "one attempt in five takes 200 ms", Kind: known, Law: sometimes(.2, 200), Rate: 500, Short: true},
	{Name: "one attempt in ten takes 300 ms", Kind: known, Law: sometimes(.1, 300), Rate: 500, Short: true},
	{
		Name: "one of 3 frozen 40 s in 80, deadline 5 s", Kind: known, Law: sick(3, plainly, frozen(40*second, 80*second)),
		Rate: 200, Deadline: 5 * second, Calls: 64_000,
	},
	{
		Name: "one of 3 frozen for a minute in 2, deadline 1 s", Kind: known,
		Law: sick(3, plainly, frozen(60*second, 120*second)), Rate: 100, Deadline: second,
	},
	{
		Name: "sizes, one of 3 frozen 3 s a minute", Kind: known, Law: sick(3, sized(.5), frozen(3*second, 60*second)),
		Rate: 500, Calls: 150_000, Short: true, Most: 2.2,
	},
	{
		Name: "the same, while it is frozen", Kind: known, Law: sick(3, sized(.5), frozen(3*second, 60*second)),
		Rate: 500, Calls: 150_000, Judged: within(3*second, 60*second), Most: 2.35,
	},
	{
		Name: "no tail, one of 3 frozen 2 s a minute, 20/s", Kind: known,
		Law: sick(3, plainly, frozen(2*second, 60*second)), Rate: 20, Calls: 60_000,
		Most: 1.4, // p99.9: tokens were spent in calm times
	},
	{
		Name: "one of 8 backends 100 ms slower, 5/s", Kind: known, Law: sick(8, plainly, slower(100)),
		Rate: 5, Short: true, Most: 1.35, // p95: the reserve has hedges wait
	},
	{
		Name: "0.5% + 200 ms, 0.05% + 1 s, 3/s", Kind: known, Rate: 3, Calls: 30_000, Most: 1.3, // as if packets were lost
		Law: attempts(3, func(x draw) float64 {
			return x.lognormal(5, .4) + x.chance(.005, 200) + x.chance(.0005, 1000)
		}),
	},
	{
		Name: "1% of attempts + 200 ms, 3/s", Kind: known, Rate: 3, Calls: 30_000, Most: 1.3,
		Law: attempts(3, func(x draw) float64 { return x.lognormal(5, .4) + x.chance(.01, 200) }),
	},
	{
		Name: "one of 5 backends 20 ms slower, 1% stall 1 s, 5/s", Kind: known, Rate: 5, Most: 1.3,
		Law: attempts(5, func(x draw) float64 {
			d := x.lognormal(5, .4) + x.chance(.01, 1000)
			if x.backend == 0 {
				d += 20
			}
			return d
		}),
	},
	{
		Name: "10% + 30 ms, 1% stall 300 ms, 100/s", Kind: known, Rate: 100, Most: 1.3,
		Law: attempts(10, func(x draw) float64 {
			return x.lognormal(3, .3) + x.chance(.01, 300) + x.chance(.1, 30)
		}),
	},
	{Name: "straggler", Kind: known, Law: Straggler, Rate: 500},
	{
		Name: "all breathe, 8% slow", Kind: known, Law: breathing(5 * second), Rate: 500, Calls: 150_000,
		Judged: after(30 * second), Short: true, Most: 1.95,
	},
	{
		Name: "batches of 50 requests of one size, 8% slow", Kind: known, Law: batches(50), Rate: 500,
		Calls: 60_000, Judged: after(30 * second), Short: true, Most: 1.3,
	},
	{
		Name: "outages, and one of 8 backends 100 ms slower", Kind: known, Law: outages(5*second, 40*second),
		Rate: 100, Judged: beside(5*second, 40*second), Most: 1.2,
	},
	{Name: "20 queues at 50% load", Kind: known, Law: queued, Servers: Servers{Count: 20, Workers: 4}, Rate: 1500},
	{
		Name: "20 queues at 90% load", Kind: known, Law: queued, Servers: Servers{Count: 20, Workers: 4}, Rate: 2700,
		Calls: 400_000, Judged: after(60 * second), Most: 1.5,
	},
	{
		Name: "20 queues at 90% load that stop cancelled work", Kind: known, Law: queued,
		Servers: Servers{Count: 20, Workers: 4, Stop: true}, Rate: 2700, Calls: 200_000,
	},
	{
		Name: "one queue at 95% load", Kind: known, Rate: 475, Calls: 100_000,
		Law:     OfRequest(func(_, a *rand.Rand) float64 { return 8 * a.ExpFloat64() }),
		Servers: Servers{Count: 1, Workers: 4}, Judged: after(60 * second),
	},

	{Name: "sizes", Kind: requests, Law: Sizes(1, .02, 200), Rate: 500, Short: true},
	{Name: "heavy+0%", Kind: requests, Law: heavy(0), Rate: 500},
	{Name: "heavy+2%", Kind: requests, Law: heavy(.02), Rate: 500, Short: true},
	{Name: "heavy+5%", Kind: requests, Law: heavy(.05), Rate: 500, Most: 1.4}, // p90: 15% of calls are slow
	{Name: "stalls at 50/s", Kind: requests, Law: stallsInFive, Medians: []float64{1}, Rate: 50},
	{Name: "stalls at 500/s", Kind: requests, Law: stallsInFive, Medians: []float64{1}, Rate: 500, Short: true},
	{Name: "stalls at 5000/s", Kind: requests, Law: stallsInFive, Medians: []float64{1}, Rate: 5000, Calls: 150_000},
	{Name: "1 s each minute at 500/s, hedges go anywhere", Kind: requests, Rate: 500, Calls: 90_000,
		Law: anywhere(5, time.Minute, second), Most: 2.4}, // p99.9: a third of the hedges stall too
	{Name: "1 s each 10 s at 20/s, hedges go anywhere", Kind: requests, Rate: 20, Law: anywhere(5, 10*second, second)},
	{Name: "correlated", Kind: requests, Law: correlated(), Concurrency: 20, Load: 2.5},
	{Name: "compaction", Kind: requests, Law: compaction, Rate: 500, Most: 1.5}, // p99.9: savings run out
	{Name: "0.2 a second", Kind: requests, Law: SlowTrickle, Rate: .2, Calls: 12_000},
	{Name: "1 a second", Kind: requests, Law: SlowTrickle, Rate: 1, Calls: 12_000},
	{Name: "3 a second", Kind: requests, Law: SlowTrickle, Rate: 3, Calls: 12_000},
	{Name: "10 a second", Kind: requests, Law: SlowTrickle, Rate: 10, Calls: 12_000},
	{Name: "20 each second", Kind: requests, Law: SlowTrickle, Gathered: 20, Every: second, Calls: 12_000},
	{Name: "10 each 10 s", Kind: requests, Law: SlowTrickle, Gathered: 10, Every: 10 * second, Calls: 12_000},
	{Name: "100 each 10 s", Kind: requests, Law: SlowTrickle, Gathered: 100, Every: 10 * second, Calls: 12_000},
	{Name: "100 each minute", Kind: requests, Law: SlowTrickle, Gathered: 100, Every: time.Minute, Calls: 12_000},
	{Name: "1000 each minute", Kind: requests, Law: SlowTrickle, Gathered: 1000, Every: time.Minute},
	{
		Name: "50 each 5 minutes", Kind: requests, Law: SlowTrickle, Gathered: 50, Every: 5 * time.Minute,
		Calls: 12_000, Most: 1.4, // p95 and p99: the reserve keeps tokens that no later call uses
	},
	{Name: "400 ms, 1 a second", Kind: requests, Law: halfSecond, Medians: []float64{400}, Rate: 1, Calls: 12_000},
	{Name: "400 ms, 4 a second", Kind: requests, Law: halfSecond, Medians: []float64{400}, Rate: 4, Calls: 12_000},
	{Name: "400 ms, 20 a second", Kind: requests, Law: halfSecond, Medians: []float64{400}, Rate: 20, Calls: 12_000},
	{
		Name: "1000 of 1 s each 2 minutes", Kind: requests, Law: SlowOnes(1000, .3, 10), Medians: []float64{1000},
		Gathered: 1000, Every: 2 * time.Minute, Calls: 24_000,
	},
	{
		Name: "200 of 1.5 s each minute", Kind: requests, Law: SlowOnes(1500, .3, 10), Medians: []float64{1500},
		Gathered: 200, Every: time.Minute, Calls: 12_000,
	},
	{
		Name: "60 newcomers with 300 calls each", Kind: requests, Law: SlowTrickle, Rate: 1800, Clients: 60, Calls: 18_000,
		First: -1, Load: 11, Most: 1.45, // p99.9: a new client has one token
	},
	{Name: "pareto", Kind: requests, Law: Pareto, Rate: 500},
	{Name: "calls become 1.45 times slower, 1/s", Kind: requests, Law: Slowing(2000*second, 1.45), Rate: 1, Calls: 2900},
	{
		// Hedges are as slow as their primaries for half an hour. Five minutes later they must be sent.
		Name: "hedges useless for half an hour", Kind: requests, Rate: 2, Calls: 2 * 3600,
		Law: func(seed, id uint64, attempt int, at time.Duration) time.Duration {
			if at < 30*time.Minute {
				attempt = 0
			}
			return SlowTrickle(seed, id, attempt, at)
		},
		Judged: func(at time.Duration) bool { return at > 35*time.Minute },
	},
	NearDeadline,

	{Name: "a hedge 1 ms slower than its primary", Kind: useless, Law: again, Concurrency: 20, Load: 3.5},
	{Name: "useless hedges, 1/s", Kind: useless, Law: same, Rate: 1, Calls: 12_000, Load: 3},
	{Name: "useless hedges, 5/s", Kind: useless, Law: same, Rate: 5, Calls: 12_000, Load: 3, Short: true},
	{Name: "useless hedges, 20/s", Kind: useless, Law: same, Rate: 20, Calls: 24_000, Load: 3},
	{Name: "useless hedges, 100/s", Kind: useless, Law: same, Rate: 100, Calls: 60_000, Load: 2.5, Short: true},
	{Name: "useless hedges, 500/s", Kind: useless, Law: same, Rate: 500, Calls: 150_000, Load: 1.5},
	{Name: "useless hedges, 2000/s", Kind: useless, Law: same, Rate: 2000, Calls: 300_000, Load: 1.5},
}, classes()...)

// Pareto is the distribution of the same name in package testserver.
var Pareto = func() Law {
	d, err := testserver.ParseDistribution("pareto")
	if err != nil {
		panic(err)
	}
	return Independent(d)
}()

// NearDeadline has 5% of attempts far beyond the deadline, three medians, and none near it.
var NearDeadline = World{
	Name: "5% miss a deadline of 3 medians", Kind: requests, Rate: 500, Deadline: 15 * ms,
	Law: OfRequest(func(_, a *rand.Rand) float64 {
		if d := 5 * math.Exp(.385*a.NormFloat64()); !Chance(a, .05) {
			return d
		}
		return 1000
	}),
}

// classes has the requests of "sizes" within a factor of e^½.
func classes() (all []World) {
	for class := -3; class < 3; class++ {
		all = append(all, World{
			Name: fmt.Sprint("sizes, class ", class), Kind: requests, Rate: 100,
			Law: OfRequest(func(r, a *rand.Rand) float64 {
				d := 5*math.Exp((float64(class)+r.Float64())/2) + a.ExpFloat64()
				if Chance(a, .02) {
					d += 200
				}
				return d
			}),
		})
	}
	return all
}
