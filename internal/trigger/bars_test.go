package trigger_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

func seeds() uint64 { return uint64(longtest.Size(1, 5)) }

// workload is a latency distribution, an arrival pattern, and a bar: p99 with hedging as a share of
// p99 without.
type workload struct {
	name         string
	distribution attemptDistribution
	rate         float64 // calls per second; 0: by concurrency
	concurrency  int
	gathered     int // calls in each burst, one burst per every; replaces the rate
	every        time.Duration
	clients      int     // with few calls each, all of them judged; 0 is one
	calls        int     // of each client; 0 is 40,000
	first        int     // leading calls that are not judged; 0 is warmedUp
	bar          float64 // 0: no bar for this workload
	quick        bool    // simulated even without HEDGE_TESTS
	load         float64 // bound, in percent; 0 is 10.5
}

const second = time.Second

// realTraffic has distributions in which requests differ, or slow calls are clustered.
var realTraffic = []workload{
	{name: "sizes", distribution: sizes(1, .02, 200), rate: 500, quick: true, bar: .30},
	{name: "heavy+0%", distribution: heavy(0), rate: 500, bar: 1.01},
	{name: "heavy+2%", distribution: heavy(.02), rate: 500, quick: true, bar: .67},
	{name: "heavy+5%", distribution: heavy(.05), rate: 500, bar: .75},
	{name: "stalls at 50/s", distribution: stallsInFive, rate: 50, bar: .05},
	{name: "stalls at 500/s", distribution: stallsInFive, rate: 500, quick: true, bar: .05},
	{name: "stalls at 5000/s", distribution: stallsInFive, rate: 5000, calls: 150_000, bar: .05},
	{name: "correlated", distribution: correlated(), concurrency: 20, bar: 1.02, load: 2.5},
	{name: "the same again", distribution: again, concurrency: 20, bar: 1.01, load: 3.5},
	{name: "compaction", distribution: compaction, rate: 500, bar: .80},
}

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

// run makes the calls of a workload and returns the judged ones.
func (w workload) run(seed uint64, p policy) (all []outcome) {
	calls := cmp.Or(w.calls, 40_000)
	if !longtest.Long() {
		calls = 15_000
	}
	for number := range uint64(max(w.clients, 1)) {
		all = append(all, client{
			distribution: w.distribution, calls: calls, concurrency: w.concurrency, rate: w.rate,
			gathered: w.gathered, every: w.every, seed: seed + number, config: config(),
		}.under(p).run().done...)
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
			t.Errorf("seed %d: p99 is %.3f of the unhedged p99, want at most %v", seed, share, w.bar)
		}
		if most := cmp.Or(w.load, 10.5); load(hedged) > most {
			t.Errorf("seed %d: load %.2f%%, want at most %v%%", seed, load(hedged), most)
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

// TestAuto_EveryRate covers low rates, bursts and new clients.
func TestAuto_EveryRate(t *testing.T) {
	longtest.Computation(t)
	longtest.Only(t)
	for _, w := range everyRate {
		w.first = w.calls / 10
		t.Run(w.name, func(t *testing.T) { w.test(t, 1000) })
	}
}
