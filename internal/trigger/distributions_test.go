package trigger_test

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

func inMillis(x float64) time.Duration { return time.Duration(x * float64(ms)) }

// independent draws the latencies of attempts independently of each other.
func independent(l testserver.Distribution) attemptDistribution {
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		return l.Draw(simulation.Generator(seed, id, attempt))
	}
}

// ofRequest is a distribution in ms with a part common to all attempts of a request, drawn from r,
// and a part of each attempt, drawn from a.
func ofRequest(draw func(r, a *rand.Rand) float64) attemptDistribution {
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		return inMillis(draw(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt)))
	}
}

func chanceOf(r *rand.Rand, p float64) bool { return r.Float64() < p }

func sizes(sigma, stallShare, stall float64) attemptDistribution {
	return ofRequest(func(r, a *rand.Rand) float64 {
		d := 5*math.Exp(sigma*r.NormFloat64()) + a.ExpFloat64()
		if chanceOf(a, stallShare) {
			d += stall
		}
		return d
	})
}

func heavy(stallShare float64) attemptDistribution {
	return ofRequest(func(r, a *rand.Rand) float64 {
		d := 5 * math.Exp(0.45*a.NormFloat64())
		if chanceOf(r, 0.10) {
			d *= 8
		}
		if chanceOf(a, stallShare) {
			d += 100
		}
		return d
	})
}

func correlated() attemptDistribution {
	usual, slow := testserver.LogNormal(5*ms, 2*ms), testserver.LogNormal(60*ms, 10*ms)
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		if chanceOf(simulation.Generator(seed, id, -1), 0.10) {
			return slow.Draw(simulation.Generator(seed, id, attempt))
		}
		return usual.Draw(simulation.Generator(seed, id, attempt))
	}
}

// backend returns which of n backends serves an attempt. Each hedge goes to a random backend that
// the call has not used.
func backend(seed, id uint64, attempt, n int) int {
	r := simulation.Generator(seed, id, -2)
	first := r.IntN(n)
	if attempt == 0 || n == 1 {
		return first
	}
	return (first + 1 + (r.IntN(n-1)+attempt-1)%(n-1)) % n
}

// stalls stalls one of three backends, in turn, for the first length of every period.
func stalls(usual func(r, a *rand.Rand) float64, period, length time.Duration) attemptDistribution {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := inMillis(usual(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt)))
		if in := at % period; in < length && backend(seed, id, attempt, 3) == int(at/period)%3 {
			d += length - in
		}
		return d
	}
}

func lognormal(median, sigma float64) func(r, a *rand.Rand) float64 {
	return func(_, a *rand.Rand) float64 { return median * math.Exp(sigma*a.NormFloat64()) }
}

// stallsInFive stalls one of three backends for one second in five.
func stallsInFive(seed, id uint64, attempt int, at time.Duration) time.Duration {
	return stalls(lognormal(1, .5), 5*second, second)(seed, id, attempt, at)
}

// compaction makes one of three backends, in turn, eight times slower for 4 s of every 20.
func compaction(seed, id uint64, attempt int, at time.Duration) time.Duration {
	d := lognormal(4, .5)(nil, simulation.Generator(seed, id, attempt))
	if at%(20*second) < 4*second && backend(seed, id, attempt, 3) == int(at/(20*second))%3 {
		d *= 8
	}
	return inMillis(d)
}

func straggler(seed, id uint64, attempt int, _ time.Duration) time.Duration {
	return testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10).
		Draw(simulation.Generator(seed, id, attempt))
}

// again gives a hedge the latency of its primary plus 1 ms.
func again(seed, id uint64, attempt int, at time.Duration) time.Duration {
	d := straggler(seed, id, 0, at)
	if attempt > 0 {
		d += ms
	}
	return d
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
