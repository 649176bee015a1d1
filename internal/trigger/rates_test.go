package trigger_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// everyRate has clients with low rates, bursts, or few calls in total.
var everyRate = []workload{
	{name: "0.2 a second", distribution: slowTrickle, rate: .2, calls: 12_000, bar: .45},
	{name: "1 a second", distribution: slowTrickle, rate: 1, calls: 12_000, bar: .42},
	{name: "3 a second", distribution: slowTrickle, rate: 3, calls: 12_000, bar: .40},
	{name: "10 a second", distribution: slowTrickle, rate: 10, calls: 12_000, bar: .40},
	{name: "20 each second", distribution: slowTrickle, gathered: 20, every: second, calls: 12_000, bar: .42},
	{name: "10 each 10 s", distribution: slowTrickle, gathered: 10, every: 10 * second, calls: 12_000, bar: .42},
	{name: "100 each 10 s", distribution: slowTrickle, gathered: 100, every: 10 * second, calls: 12_000, bar: .42},
	{name: "100 each minute", distribution: slowTrickle, gathered: 100, every: time.Minute, calls: 12_000, bar: .42},
	{name: "1000 each minute", distribution: slowTrickle, gathered: 1000, every: time.Minute, calls: 40_000, bar: .42},
	{name: "50 each 5 minutes", distribution: slowTrickle, gathered: 50, every: 5 * time.Minute, calls: 12_000, bar: .43},
	{name: "400 ms, 1 a second", distribution: halfSecond, rate: 1, calls: 12_000, bar: .45},
	{name: "400 ms, 4 a second", distribution: halfSecond, rate: 4, calls: 12_000, bar: .35},
	{name: "400 ms, 20 a second", distribution: halfSecond, rate: 20, calls: 12_000, bar: .30},
	{name: "newcomers", distribution: slowTrickle, rate: 30, clients: 60, calls: 300, bar: .48, load: 11},
}

func slowTrickle(seed, id uint64, attempt int, at time.Duration) time.Duration {
	return slowOnes(5, .45, 8)(seed, id, attempt, at)
}

func halfSecond(seed, id uint64, attempt int, at time.Duration) time.Duration {
	return slowOnes(400, .3, 10)(seed, id, attempt, at)
}

// slowOnes is lognormal, with one attempt in twenty slower by the factor times.
func slowOnes(median, sigma, times float64) attemptDistribution {
	usual := lognormal(median, sigma)
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		r := simulation.Generator(seed, id, attempt)
		d := usual(nil, r)
		if chanceOf(r, .05) {
			d *= times
		}
		return inMillis(d)
	}
}

// TestAuto_EveryRate covers low rates, bursts and new clients.
func TestAuto_EveryRate(t *testing.T) {
	longtest.Computation(t)
	longtest.Only(t)
	for _, w := range everyRate {
		w.first = w.calls / 10
		t.Run(w.name, func(t *testing.T) { w.test(t, 1000) })
	}
}
