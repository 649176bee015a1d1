package control_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/stats"
)

// world draws the latency, in ms, of a call that begins at a time, in seconds. A call that may be
// hedged gets a hedge at 20 ms.
type world func(r *rand.Rand) func(at float64, hedged bool) float64

const delay = 20.0

func healthy(r *rand.Rand) float64 { return 5 * math.Exp(0.4*r.NormFloat64()) }

// independent is a world in which attempts and calls have independent latencies.
func independent(attempt func(r *rand.Rand) float64) world {
	return func(r *rand.Rand) func(float64, bool) float64 {
		return func(_ float64, hedged bool) float64 {
			took := attempt(r)
			if hedged && took > delay {
				took = min(took, delay+attempt(r))
			}
			return took
		}
	}
}

// stalls is a world in which one of three backends stalls once in a period, for a length, both
// in seconds: at the same moment of each period, or at any moment.
func stalls(period, length float64, anyMoment bool) world {
	return func(r *rand.Rand) func(float64, bool) float64 {
		begins, next := -length, r.Float64()*period
		if anyMoment {
			next = r.ExpFloat64() * period
		}
		return func(at float64, hedged bool) float64 {
			for next <= at {
				begins = next
				if next += period; anyMoment {
					next += period * (r.ExpFloat64() - 1)
				}
			}
			took := healthy(r)
			if r.IntN(3) == 0 {
				took += 1000 * max(begins+length-at, 0)
			}
			if hedged && took > delay {
				took = min(took, delay+healthy(r))
			}
			return took
		}
	}
}

var worlds = []struct {
	name string
	world
}{
	{"stragglers", independent(func(r *rand.Rand) float64 {
		if r.Float64() < 0.05 {
			return 10 * healthy(r)
		}
		return healthy(r)
	})},
	{"pareto", independent(func(r *rand.Rand) float64 { return 3 * math.Pow(1-r.Float64(), -1/1.5) })},
	{"1 s in 20", stalls(20, 1, false)},
	{"1 s in 20, at any moment", stalls(20, 1, true)},
	{"3 s a minute", stalls(60, 3, false)},
	{"3 s a minute, at any moment", stalls(60, 3, true)},
}

// figures are the figures of a gain.
type figures struct{ unhedged, hedged, saved time.Duration }

// truth returns the figures of a world in the long run.
func (w world) truth(over time.Duration) figures {
	var took [2][]float64
	var sum [2]float64
	r := rand.New(rand.NewPCG(7, 7))
	for range longtest.Size(1000, 4000) {
		draw := w(r)
		for at := 0.0; at < over.Seconds(); at += over.Seconds() * r.ExpFloat64() / 400 {
			for group, hedged := range []bool{false, true} {
				d := draw(at, hedged)
				took[group], sum[group] = append(took[group], d), sum[group]+min(d, 600_000)
			}
		}
	}
	p99 := func(of []float64) time.Duration {
		slices.Sort(of)
		return ms(of[len(of)*99/100])
	}
	n := float64(len(took[0]))
	return figures{p99(took[0]), p99(took[1]), ms((sum[0] - sum[1]) / n)}
}

func ms(d float64) time.Duration { return time.Duration(d * float64(time.Millisecond)) }

// run returns the gain after a time in which each group has a rate of calls per second.
func (w world) run(seed uint64, over time.Duration, unhedged, hedged float64) *stats.Gain {
	r, begin := rand.New(rand.NewPCG(seed, 1)), time.Now()
	groups, draw := control.For(0.5, "", nil), w(r)
	rate := unhedged + hedged
	for at := r.ExpFloat64() / rate; at < over.Seconds(); at += r.ExpFloat64() / rate {
		start, group := begin.Add(ms(1000*at)), control.Unhedged
		if r.Float64() < hedged/rate {
			group = control.Hedgeable
		}
		took := ms(draw(at, group == control.Hedgeable))
		if group == control.Hedgeable && took > ms(delay) {
			groups.HedgeSent(start)
		}
		groups.Ended(group, start.Add(took), took, true)
	}
	return groups.Gain(begin.Add(over))
}

// TestGain_HoldsTheTruth counts how often the interval of each figure holds the truth: 93 to 97 of
// 100 are expected, and chance adds one to either side in 1,500 runs. (Binomial intervals hold it
// 70 times in 100 if a backend stalls at any moment.) An interval hardly wider than a bucket of the
// sketch holds it more often. The mean of a Pareto distribution like this one has no variance, so
// its interval is too narrow.
func TestGain_HoldsTheTruth(t *testing.T) {
	longtest.Computation(t)
	const over = 30 * time.Minute
	runs, least, most := longtest.Size(80, 1500), longtest.Size(86, 92), longtest.Size(100, 98)
	for _, tc := range worlds {
		t.Run(tc.name, func(t *testing.T) {
			truth := tc.truth(over)
			var held, wide [3]float64
			for seed := range runs {
				gain := tc.run(uint64(seed), over, 4, 8)
				if !gain.Measured {
					t.Fatalf("not measured: %+v", gain)
				}
				for i, check := range []struct {
					got   stats.Interval
					truth time.Duration
				}{{gain.Unhedged, truth.unhedged}, {gain.Hedged, truth.hedged}, {gain.Saved, truth.saved}} {
					bucket := check.truth / 100
					if i == 2 {
						bucket = 0
					}
					if check.got.Low-bucket <= check.truth && check.truth <= check.got.High+bucket {
						held[i] += 100 / float64(runs)
					}
					wide[i] += float64(check.got.High-check.got.Low) / float64(check.truth) / float64(runs)
				}
			}
			t.Logf("p99 %v, with hedging %v, saved %v: held %.1f%%, %.1f%% and %.1f%%; width %.2f, %.2f "+
				"and %.2f", truth.unhedged, truth.hedged,
				truth.saved, held[0], held[1], held[2], wide[0], wide[1], wide[2])
			for i, held := range held {
				if i == 2 && tc.name == "pareto" {
					continue
				}
				if held < float64(least) || wide[i] > 0.2 && held > float64(most) {
					t.Errorf("interval %d contains the truth %.1f times in 100", i, held)
				}
			}
		})
	}
}
