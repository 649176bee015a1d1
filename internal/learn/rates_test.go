package learn_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// arrivals is how the calls of a client come, and what is to be reached then: the 99th percentile as a share of that without
// hedging.
type arrivals struct {
	name         string
	distribution attemptDistribution // nil: slow-trickle's
	rate         float64             // calls a second
	gathered     int                 // so many at once, every so long, in place of the rate
	every        time.Duration
	clients      int // that each make so few calls, and of which the first is looked at as well; 0 is one
	calls        int // of each client; 0 is 12,000
	bar          float64
	load         float64 // the most, in percent; 0 is 10.5
}

// everyRate is what clients do that are no firehose.
var everyRate = []arrivals{
	{name: "0.2 a second", rate: .2, bar: .45},
	{name: "1 a second", rate: 1, bar: .42},
	{name: "3 a second", rate: 3, bar: .40},
	{name: "10 a second", rate: 10, bar: .38},
	{name: "20 each second", gathered: 20, every: second, bar: .42},
	{name: "10 each 10 s", gathered: 10, every: 10 * second, bar: .42},
	{name: "100 each 10 s", gathered: 100, every: 10 * second, bar: .42},
	{name: "100 each minute", gathered: 100, every: time.Minute, bar: .42},
	{name: "1000 each minute", gathered: 1000, every: time.Minute, calls: 40_000, bar: .42},
	{name: "50 each 5 minutes", gathered: 50, every: 5 * time.Minute, bar: .42},
	{name: "400 ms, 1 a second", distribution: halfSecond, rate: 1, bar: .45},
	{name: "400 ms, 4 a second", distribution: halfSecond, rate: 4, bar: .35},
	{name: "400 ms, 20 a second", distribution: halfSecond, rate: 20, bar: .30},
	{name: "newcomers", rate: 30, clients: 60, calls: 300, bar: .46, load: 11},
}

func slowTrickle(seed, id uint64, attempt int, at time.Duration) time.Duration {
	return slowOnes(5, .45, 8)(seed, id, attempt, at)
}

func halfSecond(seed, id uint64, attempt int, at time.Duration) time.Duration {
	return slowOnes(400, .3, 10)(seed, id, attempt, at)
}

// slowOnes is lognormal, and one attempt in twenty takes so many times longer.
func slowOnes(median, sigma, times float64) attemptDistribution {
	usual := lognormal(median, sigma)
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		r := generator(seed, id, attempt)
		d := usual(nil, r)
		if chanceOf(r, .05) {
			d *= times
		}
		return inMillis(d)
	}
}

// run returns the calls that are looked at: all but the first tenth, or all where there are several clients.
func (a arrivals) run(seed uint64, hedged bool) []outcome {
	distribution := a.distribution
	if distribution == nil {
		distribution = slowTrickle
	}
	var all []outcome
	for client := range uint64(max(a.clients, 1)) {
		c := config()
		if !hedged {
			c.MaxHedges = 0
		}
		sim := simulation{
			distribution: distribution, calls: cmp.Or(a.calls, longtest.Size(6_000, 12_000)), rate: a.rate, gathered: a.gathered, every: a.every,
			seed: 1000*seed + client, config: c,
		}
		calls := sim.run().done
		if a.clients == 0 {
			calls = calls[len(calls)/10:]
		}
		all = append(all, calls...)
	}
	return all
}

// compare returns the p99 as a share of that without hedging, and the load in percent, the worst of all seeds.
func (a arrivals) compare() (share, most float64) {
	for seed := uint64(1); seed <= seeds(); seed++ {
		hedged := a.run(seed, true)
		share = max(share, tail(hedged, 0.99)/tail(a.run(seed, false), 0.99))
		most = max(most, load(hedged))
	}
	return share, most
}

// TestAuto_EveryRate has few calls, calls in bursts and clients that are new.
func TestAuto_EveryRate(t *testing.T) {
	longtest.Computation(t)
	longtest.Only(t)
	for _, a := range everyRate {
		t.Run(a.name, func(t *testing.T) {
			share, load := a.compare()
			t.Logf("%-20s p99 %.3f of none's (at most %.2f), load %5.2f%%", a.name, share, a.bar, load)
			if share > a.bar {
				t.Errorf("p99 is %.3f of none's, want at most %v", share, a.bar)
			}
			if want := cmp.Or(a.load, 10.5); load > want {
				t.Errorf("load %.2f%%, want at most %v%%", load, want)
			}
		})
	}
}

// TestEveryRate_Outage lets every call be a second slower for a minute. Each client sends at most a tenth as many hedges as it
// makes calls meanwhile, and three more.
func TestEveryRate_Outage(t *testing.T) {
	longtest.Computation(t)
	longtest.Only(t)
	const from, to = 10 * time.Minute, 11 * time.Minute
	for _, rate := range []float64{1, 5} {
		worst := -100.0
		for seed := uint64(1); seed <= 20; seed++ {
			distribution := func(seed, id uint64, attempt int, at time.Duration) time.Duration {
				d := slowTrickle(seed, id, attempt, at)
				if from <= at && at < to {
					d += second
				}
				return d
			}
			done := simulation{distribution: distribution, calls: int(rate * 750), rate: rate, seed: seed, config: config()}.run().done
			done = slices.DeleteFunc(done, func(c outcome) bool { return c.at < from || c.at >= to })
			hedges := 0
			for _, c := range done {
				hedges += c.hedges
			}
			worst = max(worst, float64(hedges)-float64(len(done))/10)
		}
		t.Logf("%v a second: at most %.1f hedges beyond a tenth of the calls", rate, worst)
		if worst > 3 {
			t.Errorf("%v a second: %.1f hedges beyond a tenth of the calls, want at most 3", rate, worst)
		}
	}
}
