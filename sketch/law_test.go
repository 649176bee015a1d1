package sketch_test

import (
	"math"
	"math/rand/v2"
	"time"
)

// law draws latencies in milliseconds.
type law func(*rand.Rand) float64

func (l law) draw(r *rand.Rand) time.Duration {
	return time.Duration(l(r) * float64(time.Millisecond))
}

// logn is the lognormal law of a mean and a standard deviation.
func logn(mean, deviation float64) law {
	sigma := math.Sqrt(math.Log1p(deviation * deviation / mean / mean))
	mu := math.Log(mean) - sigma*sigma/2
	return func(r *rand.Rand) float64 { return math.Exp(mu + sigma*r.NormFloat64()) }
}

func uniform(from, to float64) law {
	return func(r *rand.Rand) float64 { return from + (to-from)*r.Float64() }
}

func constant(x float64) law {
	return func(*rand.Rand) float64 { return x }
}

func pareto(least, alpha float64) law {
	return func(r *rand.Rand) float64 { return least * math.Pow(1-r.Float64(), -1/alpha) }
}

// either draws from slow with a probability, and else from fast.
func either(fast law, probability float64, slow law) law {
	return func(r *rand.Rand) float64 {
		if r.Float64() < probability {
			return slow(r)
		}
		return fast(r)
	}
}

func straggler() law {
	base := logn(5, 2)
	return either(base, 0.05, func(r *rand.Rand) float64 { return 10 * base(r) })
}
