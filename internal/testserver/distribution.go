package testserver

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// A Distribution is a distribution of latencies. Distributions are stateless values that can be
// shared and composed. Draw takes its randomness from the generator passed in, and must have
// exclusive use of it during the call.
//
// The constructors in this package panic on a parameter out of range, which is a bug in the
// program. [ParseDistribution] reads user input and returns an error instead. Draws are between
// zero and one day.
type Distribution interface {
	Draw(rng *rand.Rand) time.Duration
}

// longest bounds a draw, so that the far end of a heavy tail neither overflows
// a sum of draws nor differs from never answering.
const longest = 24 * time.Hour

// toDuration turns nanoseconds into a duration within the bounds of a draw.
func toDuration(ns float64) time.Duration {
	switch {
	case !(ns > 0):
		return 0
	case ns >= float64(longest):
		return longest
	}
	return time.Duration(ns)
}

// checked is a distribution that knows whether its parameters make sense.
type checked interface {
	Distribution
	validate() error
}

func must(l checked) Distribution {
	if err := l.validate(); err != nil {
		panic("testserver: " + err.Error())
	}
	return l
}

// Constant always draws d.
func Constant(d time.Duration) Distribution { return must(constant{d}) }

type constant struct{ d time.Duration }

func (l constant) validate() error { return durationOutOfRange("constant latency", l.d) }

func (l constant) Draw(*rand.Rand) time.Duration { return l.d }

// Uniform draws evenly from [low, high].
func Uniform(low, high time.Duration) Distribution { return must(uniform{low, high}) }

type uniform struct{ low, high time.Duration }

func (l uniform) validate() error {
	if l.high < l.low {
		return fmt.Errorf("uniform high %v is below its low %v", l.high, l.low)
	}
	if err := durationOutOfRange("uniform low", l.low); err != nil {
		return err
	}
	return durationOutOfRange("uniform high", l.high)
}

func (l uniform) Draw(rng *rand.Rand) time.Duration {
	return toDuration(float64(l.low) + rng.Float64()*float64(l.high-l.low))
}

// Exponential draws from the exponential distribution with the given mean.
func Exponential(mean time.Duration) Distribution { return must(exponential{mean}) }

type exponential struct{ mean time.Duration }

func (l exponential) validate() error { return durationNotPositive("exponential mean", l.mean) }

func (l exponential) Draw(rng *rand.Rand) time.Duration {
	return toDuration(rng.ExpFloat64() * float64(l.mean))
}

// LogNormal draws from the lognormal distribution with this mean and standard deviation:
// its own, and not its logarithm's.
func LogNormal(mean, sd time.Duration) Distribution { return must(logNormal{mean, sd}) }

type logNormal struct{ mean, sd time.Duration }

func (l logNormal) validate() error {
	if err := durationNotPositive("lognormal mean", l.mean); err != nil {
		return err
	}
	return durationOutOfRange("lognormal standard deviation", l.sd)
}

func (l logNormal) Draw(rng *rand.Rand) time.Duration {
	// A lognormal with log-mean µ and log-variance v has mean exp(µ + v/2) and
	// variance (exp(v) − 1) · mean².
	ratio := float64(l.sd) / float64(l.mean)
	variance := math.Log1p(ratio * ratio)
	mu := math.Log(float64(l.mean)) - variance/2
	return toDuration(math.Exp(mu + math.Sqrt(variance)*rng.NormFloat64()))
}

// Pareto draws scale · U^(−1/alpha) for U uniform on (0, 1]: at least scale,
// with a tail that falls as the power alpha. Its mean is infinite for alpha ≤ 1
// and its variance for alpha ≤ 2, but for the bound on every draw.
func Pareto(scale time.Duration, alpha float64) Distribution { return must(pareto{scale, alpha}) }

type pareto struct {
	scale time.Duration
	alpha float64
}

func (l pareto) validate() error {
	if err := durationNotPositive("pareto scale", l.scale); err != nil {
		return err
	}
	if !(l.alpha > 0) || math.IsInf(l.alpha, 1) {
		return fmt.Errorf("pareto alpha must be positive and finite, got %v", l.alpha)
	}
	return nil
}

func (l pareto) Draw(rng *rand.Rand) time.Duration {
	u := 1 - rng.Float64() // Float64 may be 0, never 1
	return toDuration(float64(l.scale) * math.Pow(u, -1/l.alpha))
}

// Straggler draws from base, and with the given probability multiplies the draw
// by factor: the same backend, at times much slower for no fault of the request.
func Straggler(base Distribution, probability, factor float64) Distribution {
	return must(straggler{base, probability, factor})
}

type straggler struct {
	base        Distribution
	probability float64
	factor      float64
}

func (l straggler) validate() error {
	if !(l.probability >= 0 && l.probability <= 1) {
		return fmt.Errorf("straggler probability must be from 0 to 1, got %v", l.probability)
	}
	if !(l.factor >= 0) || math.IsInf(l.factor, 1) {
		return fmt.Errorf("straggler factor must be finite and at least 0, got %v", l.factor)
	}
	return nil
}

func (l straggler) Draw(rng *rand.Rand) time.Duration {
	d := l.base.Draw(rng)
	if rng.Float64() < l.probability {
		return toDuration(float64(d) * l.factor)
	}
	return d
}

// A Part is one distribution of a [Mixture] and how much it weighs in it.
type Part struct {
	Weight       float64
	Distribution Distribution
}

// Mixture draws from one of its parts, chosen for each draw with a probability proportional to its
// weight. Two parts make a bimodal distribution.
func Mixture(parts ...Part) Distribution {
	l := mixture{parts: append([]Part(nil), parts...)}
	for _, p := range parts {
		l.total += p.Weight
	}
	return must(l)
}

type mixture struct {
	parts []Part
	total float64
}

func (l mixture) validate() error {
	for _, p := range l.parts {
		if !(p.Weight >= 0) {
			return fmt.Errorf("mixture weight must be at least 0, got %v", p.Weight)
		}
	}
	if !(l.total > 0) || math.IsInf(l.total, 1) {
		return fmt.Errorf("mixture weights must add up to more than 0, got %v", l.total)
	}
	return nil
}

func (l mixture) Draw(rng *rand.Rand) time.Duration {
	u := rng.Float64() * l.total
	last := len(l.parts) - 1
	for _, p := range l.parts[:last] {
		if u < p.Weight {
			return p.Distribution.Draw(rng)
		}
		u -= p.Weight
	}
	return l.parts[last].Distribution.Draw(rng)
}

// Add draws from each of its distributions and returns the sum. With a [Mixture] in it,
// it adds extra delays, each with its own probability.
func Add(distributions ...Distribution) Distribution {
	return sum(append([]Distribution(nil), distributions...))
}

type sum []Distribution

func (l sum) Draw(rng *rand.Rand) time.Duration {
	var total float64
	for _, distribution := range l {
		total += float64(distribution.Draw(rng))
	}
	return toDuration(total)
}

func durationOutOfRange(what string, d time.Duration) error {
	if d < 0 || d > longest {
		return fmt.Errorf("%s must be from 0 to %v, got %v", what, longest, d)
	}
	return nil
}

func durationNotPositive(what string, d time.Duration) error {
	if d <= 0 || d > longest {
		return fmt.Errorf("%s must be above 0 and at most %v, got %v", what, longest, d)
	}
	return nil
}
