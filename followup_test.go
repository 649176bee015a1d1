package hedge_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/stats"
)

func spread(r *rand.Rand, median, sigma float64) float64 {
	return median * math.Exp(sigma*r.NormFloat64())
}

// slower is by in so many of all cases, and usual in the others.
func slower(r *rand.Rand, share, by, usual float64) float64 {
	if r.Float64() < share {
		return by
	}
	return usual
}

func ofSizes(sigma float64) func(common, own *rand.Rand) float64 {
	return func(common, own *rand.Rand) float64 {
		return spread(common, 5, sigma) + own.ExpFloat64() + slower(own, 0.02, 200, 0)
	}
}

// gained are the distributions on which it is checked what hedging is said to gain: those of internal/feature/followup.
var gained = []struct {
	name string
	draw func(common, own *rand.Rand) float64
}{
	{"straggler", func(_, own *rand.Rand) float64 { return spread(own, 5, 0.45) * slower(own, 0.02, 10, 1) }},
	{"sizes", ofSizes(1)},
	{"sizes 1.5", ofSizes(1.5)},
	{"tenants", func(common, own *rand.Rand) float64 {
		scale := math.Exp(0.9 * math.Sqrt2 * math.Erfinv(2*(float64(common.IntN(20))+0.5)/20-1))
		return scale * spread(own, 5, 0.3) * slower(own, 0.03, 8, 1)
	}},
	{"half", func(common, own *rand.Rand) float64 { return spread(common, 1, 0.7) * spread(own, 5, 0.7) }},
	{"heavy+2%", func(common, own *rand.Rand) float64 {
		return slower(common, 0.10, 8, 1)*spread(own, 5, 0.45) + slower(own, 0.02, 100, 0)
	}},
	{"pareto", func(_, own *rand.Rand) float64 { return 3 * math.Pow(1-own.Float64(), -1/1.5) }},
	{"lognormal", func(_, own *rand.Rand) float64 { return spread(own, 5, 0.45) }},
	{"exponential", func(_, own *rand.Rand) float64 { return 1 + 8*own.ExpFloat64() }},
}

// primaryTail is the quantile of what primaries take.
func primaryTail(draw attemptDistribution, calls int, q float64) time.Duration {
	took := make([]time.Duration, calls)
	for id := range took {
		took[id] = draw(uint64(id), 0, 0)
	}
	slices.Sort(took)
	return took[int(q*float64(calls))]
}

// TestTargets_Gain: what [hedge.Scheduler.Targets] says that p99 would be without hedging is within 15% of the truth at the median of
// samples in 40,000 calls, and, in the full tier, within 5% over ten minutes at 500 calls a second, with nothing configured.
func TestTargets_Gain(t *testing.T) {
	longtest.Simulation(t)
	const rate = 500
	for _, d := range longtest.First(1, gained) {
		t.Run(d.name, func(t *testing.T) {
			truth := float64(primaryTail(ofSeed(1<<40, d.draw), longtest.Size(400_000, 2_000_000), 0.99))
			gain := func(seed uint64, calls int) (stats.Gain, float64) {
				_, rows := simulation{distribution: ofSeed(seed, d.draw), calls: calls, rate: rate, unary: true, seed: seed}.run(t)
				g, c := rows[0].Gain, rows[0].Choice
				if !g.Measured || c.UnhedgedTail != g.Unhedged.Value || c.UnhedgedTailFrom != stats.FromFollowUp {
					t.Errorf("seed %d: %+v; %+v", seed, g, c)
				}
				return g, float64(g.Unhedged.Value) / truth
			}
			var said []float64
			held, samples := 0, longtest.Table(1, 3, 25)
			for seed := range uint64(samples) {
				g, share := gain(seed+1, 40_000)
				if said = append(said, share); float64(g.Unhedged.Low) <= truth && truth <= float64(g.Unhedged.High) {
					held++
				}
			}
			slices.Sort(said)
			median := said[samples/2]
			t.Logf("said %.2f of the truth (%.2f to %.2f), %d of %d intervals hold it", median, said[0], said[samples-1], held, samples)
			if within := 0.15; *longtest.Long && math.Abs(median-1) > within {
				t.Errorf("p99 is said to be %.2f of the truth", median)
			}
			if held < samples*3/5 {
				t.Errorf("%d of %d intervals hold the truth", held, samples)
			}
			said = nil
			for seed := range uint64(longtest.Table(0, 0, 25)) {
				_, share := gain(seed+1, 600*rate)
				said = append(said, share)
			}
			if slices.Sort(said); len(said) > 0 {
				median = said[len(said)/2]
				t.Logf("over ten minutes %.3f (%.3f to %.3f)", median, said[0], said[len(said)-1])
				if math.Abs(median-1) > 0.05 {
					t.Errorf("over ten minutes p99 is said to be %.3f of the truth", median)
				}
			}
		})
	}
}

// TestFollowUp_TailAndLoad: with follow-up p99 and the load are what they are without it, within 1% on average.
func TestFollowUp_TailAndLoad(t *testing.T) {
	longtest.Simulation(t)
	for _, d := range longtest.First(1, gained) {
		t.Run(d.name, func(t *testing.T) {
			var p99, extra [2]float64
			samples := longtest.Table(1, 1, 5)
			for seed := range uint64(samples) {
				for i, options := range [][]hedge.Option{nil, {hedge.WithFollowUp(0)}} {
					calls, _ := simulation{distribution: ofSeed(seed, d.draw), calls: 40_000, rate: 500, unary: true, seed: seed, options: options}.run(t)
					p99[i] += math.Log(float64(tail(calls, 0.99))) / float64(samples)
					extra[i] += load(calls) / float64(samples)
				}
			}
			tails, loads := math.Exp(p99[0]-p99[1]), extra[0]/extra[1]
			t.Logf("with follow-up p99 is %.3f times, and the load %.3f times what it is without", tails, loads)
			if tails > 1.01 || loads > 1.01 {
				t.Errorf("p99 %.3f, load %.3f", tails, loads)
			}
		})
	}
}

// TestFollowUp_OneProcessor: where both attempts of a call wait for one processor, which then serves whatever waits within a
// millisecond, hedges win half of the time and save nothing. There hedging steps down. It is back when attempts have nothing to do
// with each other.
func TestFollowUp_OneProcessor(t *testing.T) {
	longtest.Simulation(t)
	const rate = 200
	apart := time.Duration(longtest.Size(2, 10)) * time.Minute
	calls := int((apart + 3*time.Minute).Seconds()) * rate
	own := ofSeed(2, func(_, own *rand.Rand) float64 { return 1 + 8*own.ExpFloat64() })
	free := make([]atomic.Int64, calls) // when the processor serves each call
	distribution := func(id uint64, attempt int, at time.Duration) time.Duration {
		if at > apart {
			return own(id, attempt, at)
		}
		if attempt == 0 {
			free[id].Store(int64(at + inMillis(1+8*generator(1, id, 1000).ExpFloat64())))
		}
		return max(0, time.Duration(free[id].Load())-at) + inMillis(generator(1, id, attempt).Float64())
	}
	var down, back time.Duration
	ended, _ := simulation{
		distribution: distribution, calls: calls, rate: rate, seed: 1, unary: true,
		every: func(s *hedge.Scheduler, at time.Duration) {
			for _, row := range s.Targets() {
				switch stepped := row.Choice.SteppedDown; {
				case stepped == stats.NothingToGain && down == 0:
					down = at
				case stepped == stats.NotSteppedDown && at > apart && back == 0:
					back = at - apart
				}
			}
		},
	}.run(t)
	within := func(from, to time.Duration) (calls []outcome) {
		for _, c := range ended {
			if from <= c.at && c.at < to {
				calls = append(calls, c)
			}
		}
		return calls
	}
	from := time.Minute
	if !*longtest.Long {
		from = down
	}
	first, later, last := within(5*time.Second, 30*time.Second), within(from, apart), within(apart+2*time.Minute, apart+3*time.Minute)
	var plain []outcome
	for _, c := range later {
		c.took = distribution(c.id, 0, c.at)
		plain = append(plain, c)
	}
	p99 := float64(tail(later, 0.99)) / float64(tail(plain, 0.99))
	t.Logf("load %.2f%%, stepped down after %v, then %.2f%%, p99 %.3f of plain's; apart, it is back after %v, with a load of %.2f%%",
		100*load(first), down, 100*load(later), p99, back, 100*load(last))
	if down == 0 || load(later) > 0.015 || p99 > 1.01 {
		t.Errorf("where both wait for one processor: stepped down after %v, load %.4f, p99 %.3f", down, load(later), p99)
	}
	if back == 0 || back > 2*time.Minute || load(last) < 0.06 {
		t.Errorf("apart: back after %v, load %.4f", back, load(last))
	}
}

// TestFollowUp_StallsThatComeSeldom: where hedging gains nothing it steps down, and must be back soon when a minute comes in which it
// gains a lot: 3% of attempts stall for 30 s. A loser that stalls tells nothing until it is cut short.
func TestFollowUp_StallsThatComeSeldom(t *testing.T) {
	longtest.Simulation(t)
	const rate, calm, minute = 200, 3 * time.Minute, time.Minute
	calls := int((calm + minute).Seconds()) * rate
	p99 := func(followUp float64) (p99 time.Duration, down bool) {
		stalls := ofSeed(2, func(_, own *rand.Rand) float64 { return 1 + 8*own.ExpFloat64() + slower(own, 0.03, 30_000, 0) })
		free := make([]atomic.Int64, calls) // when the processor serves each call
		ended, _ := simulation{
			distribution: func(id uint64, attempt int, at time.Duration) time.Duration {
				if at > calm {
					return stalls(id, attempt, at)
				}
				if attempt == 0 {
					free[id].Store(int64(at + inMillis(1+8*generator(1, id, 1000).ExpFloat64())))
				}
				return max(0, time.Duration(free[id].Load())-at) + inMillis(generator(1, id, attempt).Float64())
			},
			calls: calls, rate: rate, seed: 1, unary: true, options: []hedge.Option{hedge.WithFollowUp(followUp)},
			every: func(s *hedge.Scheduler, at time.Duration) {
				for _, row := range s.Targets() {
					down = down || at < calm && row.Choice.SteppedDown == stats.NothingToGain
				}
			},
		}.run(t)
		ended = slices.DeleteFunc(ended, func(c outcome) bool { return c.at < calm })
		return tail(ended, 0.99), down
	}
	without, _ := p99(0)
	with, down := p99(5)
	if t.Logf("p99 of the minute %v, and %v without follow-up", with, without); !down || with > without*5/4 {
		t.Errorf("p99 %v, and %v without follow-up; stepped down before: %v", with, without, down)
	}
}
