package sketch_test

import (
	"math"
	"math/rand/v2"
	"time"
)

// distribution draws latencies in milliseconds.
type distribution func(*rand.Rand) float64

func (l distribution) draw(r *rand.Rand) time.Duration {
	return time.Duration(l(r) * float64(time.Millisecond))
}

// logn is the lognormal distribution of a mean and a standard deviation.
func logn(mean, deviation float64) distribution {
	sigma := math.Sqrt(math.Log1p(deviation * deviation / mean / mean))
	mu := math.Log(mean) - sigma*sigma/2
	return func(r *rand.Rand) float64 { return math.Exp(mu + sigma*r.NormFloat64()) }
}

func uniform(from, to float64) distribution {
	return func(r *rand.Rand) float64 { return from + (to-from)*r.Float64() }
}

func constant(x float64) distribution {
	return func(*rand.Rand) float64 { return x }
}

func pareto(least, alpha float64) distribution {
	return func(r *rand.Rand) float64 { return least * math.Pow(1-r.Float64(), -1/alpha) }
}

// either draws from slow with a probability, and else from fast.
func either(fast distribution, probability float64, slow distribution) distribution {
	return func(r *rand.Rand) float64 {
		if r.Float64() < probability {
			return slow(r)
		}
		return fast(r)
	}
}

func straggler() distribution {
	base := logn(5, 2)
	return either(base, 0.05, func(r *rand.Rand) float64 { return 10 * base(r) })
}
