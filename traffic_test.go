package hedge_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
)

// attemptDistribution is how long an attempt takes that is sent at a time; attempt 0 is the primary.
type attemptDistribution = func(id uint64, attempt int, at time.Duration) time.Duration

// ofRequest is a distribution in ms with a part that each attempt of a request has in common, drawn from r, and one of its own, from a.
func ofRequest(draw func(r, a *rand.Rand) float64) attemptDistribution { return ofSeed(1, draw) }

func ofSeed(seed uint64, draw func(r, a *rand.Rand) float64) attemptDistribution {
	return func(id uint64, attempt int, _ time.Duration) time.Duration {
		return inMillis(draw(generator(seed, id, -1), generator(seed, id, attempt)))
	}
}

func inMillis(x float64) time.Duration { return time.Duration(x * float64(ms)) }

// sizes lets the request decide most of the latency; 2% of attempts stall.
var sizes = ofRequest(func(r, a *rand.Rand) float64 {
	d := 5*math.Exp(r.NormFloat64()) + a.ExpFloat64()
	if a.Float64() < 0.02 {
		d += 200
	}
	return d
})

// heavy lets one request in ten be eight times slower on every backend; 2% of attempts stall.
var heavy = ofRequest(func(r, a *rand.Rand) float64 {
	d := 5 * math.Exp(0.45*a.NormFloat64())
	if r.Float64() < 0.10 {
		d *= 8
	}
	if a.Float64() < 0.02 {
		d += 100
	}
	return d
})

// stalls lets one of three backends stand still for a second in every five, in turn; a hedge goes to another.
func stalls(id uint64, attempt int, at time.Duration) time.Duration {
	d := time.Duration(math.Exp(0.5*generator(1, id, attempt).NormFloat64()) * float64(ms))
	backend := (generator(1, id, -2).IntN(3) + attempt) % 3
	if in := at % (5 * time.Second); in < time.Second && backend == int(at/(5*time.Second))%3 {
		d += time.Second - in
	}
	return d
}

// TestAuto_RealTraffic has requests that differ and slow calls that come in bunches, with the whole scheduler. More distributions, and
// more seeds, are in internal/learn.
func TestAuto_RealTraffic(t *testing.T) {
	longtest.Simulation(t)
	type bounds struct {
		name         string
		distribution attemptDistribution
		rate         float64
		bar          float64 // p99 by none's
	}
	for _, tc := range longtest.First(1, []bounds{
		{"sizes", sizes, 500, 0.30},
		{"stalls at 500/s", stalls, 500, 0.05},
		{"heavy", heavy, 500, 0.67},
		{"stalls at 50/s", stalls, 50, 0.05},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			run := func(hedges int) []outcome {
				ended, rows := simulation{distribution: tc.distribution, calls: calls, rate: tc.rate, seed: 1, options: []hedge.Option{hedge.WithMaxHedges(hedges)}}.run(t)
				t.Logf("%+v", rows[0].Choice)
				return ended[warmedUp:]
			}
			hedged := run(2)
			share := float64(tail(hedged, 0.99)) / float64(tail(run(0), 0.99))
			t.Logf("p99 %.3f of none's, load %.2f%%", share, 100*load(hedged))
			if share > tc.bar || load(hedged) > 0.105 {
				t.Errorf("p99 is %.3f of none's at a load of %.2f%%, want at most %v and 10.5%%", share, 100*load(hedged), tc.bar)
			}
		})
	}
}
