package learn_test

import (
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// everyRate is what clients do that are no firehose.
var everyRate = []workload{
	{name: "0.2 a second", distribution: slowTrickle, rate: .2, calls: 12_000, bar: .45},
	{name: "1 a second", distribution: slowTrickle, rate: 1, calls: 12_000, bar: .42},
	{name: "3 a second", distribution: slowTrickle, rate: 3, calls: 12_000, bar: .40},
	{name: "10 a second", distribution: slowTrickle, rate: 10, calls: 12_000, bar: .38},
	{name: "20 each second", distribution: slowTrickle, gathered: 20, every: second, calls: 12_000, bar: .42},
	{name: "10 each 10 s", distribution: slowTrickle, gathered: 10, every: 10 * second, calls: 12_000, bar: .42},
	{name: "100 each 10 s", distribution: slowTrickle, gathered: 100, every: 10 * second, calls: 12_000, bar: .42},
	{name: "100 each minute", distribution: slowTrickle, gathered: 100, every: time.Minute, calls: 12_000, bar: .42},
	{name: "1000 each minute", distribution: slowTrickle, gathered: 1000, every: time.Minute, calls: 40_000, bar: .42},
	{name: "50 each 5 minutes", distribution: slowTrickle, gathered: 50, every: 5 * time.Minute, calls: 12_000, bar: .42},
	{name: "400 ms, 1 a second", distribution: halfSecond, rate: 1, calls: 12_000, bar: .45},
	{name: "400 ms, 4 a second", distribution: halfSecond, rate: 4, calls: 12_000, bar: .35},
	{name: "400 ms, 20 a second", distribution: halfSecond, rate: 20, calls: 12_000, bar: .30},
	{name: "newcomers", distribution: slowTrickle, rate: 30, clients: 60, calls: 300, bar: .46, load: 11},
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

// TestAuto_EveryRate has few calls, calls in bursts and clients that are new.
func TestAuto_EveryRate(t *testing.T) {
	longtest.Computation(t)
	longtest.Only(t)
	for _, w := range everyRate {
		w.first = w.calls / 10
		t.Run(w.name, func(t *testing.T) { w.test(t, 1000) })
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
