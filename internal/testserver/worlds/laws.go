package worlds

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

const (
	ms     = time.Millisecond
	second = time.Second
)

// Law returns the latency of an attempt sent at a time. Attempt 0 is the primary.
type Law func(seed, id uint64, attempt int, at time.Duration) time.Duration

func inMillis(x float64) time.Duration { return time.Duration(x * float64(ms)) }

// Independent draws the latencies of attempts independently of each other.
func Independent(l testserver.Distribution) Law {
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		return l.Draw(simulation.Generator(seed, id, attempt))
	}
}

// OfRequest is a distribution in ms with a part common to all attempts of a request, drawn from r,
// and a part of each attempt, drawn from a.
func OfRequest(draw func(r, a *rand.Rand) float64) Law {
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		return inMillis(draw(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt)))
	}
}

func Chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func Sizes(sigma, stallShare, stall float64) Law {
	return OfRequest(func(r, a *rand.Rand) float64 {
		d := 5*math.Exp(sigma*r.NormFloat64()) + a.ExpFloat64()
		if Chance(a, stallShare) {
			d += stall
		}
		return d
	})
}

func heavy(stallShare float64) Law {
	return OfRequest(func(r, a *rand.Rand) float64 {
		d := 5 * math.Exp(0.45*a.NormFloat64())
		if Chance(r, 0.10) {
			d *= 8
		}
		if Chance(a, stallShare) {
			d += 100
		}
		return d
	})
}

func correlated() Law {
	usual, slow := testserver.LogNormal(5*ms, 2*ms), testserver.LogNormal(60*ms, 10*ms)
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		if Chance(simulation.Generator(seed, id, -1), 0.10) {
			return slow.Draw(simulation.Generator(seed, id, attempt))
		}
		return usual.Draw(simulation.Generator(seed, id, attempt))
	}
}

// Backend returns which of n backends serves an attempt. Each hedge goes to a random backend that
// the call has not used.
func Backend(seed, id uint64, attempt, n int) int {
	r := simulation.Generator(seed, id, -2)
	first := r.IntN(n)
	if attempt == 0 || n == 1 {
		return first
	}
	return (first + 1 + (r.IntN(n-1)+attempt-1)%(n-1)) % n
}

// stalls stalls one of three backends, in turn, for the first length of every period.
func stalls(usual func(r, a *rand.Rand) float64, period, length time.Duration) Law {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := inMillis(usual(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt)))
		if in := at % period; in < length && Backend(seed, id, attempt, 3) == int(at/period)%3 {
			d += length - in
		}
		return d
	}
}

// anywhere stalls a backend of three as stalls does, and hedges may go there too.
func anywhere(median float64, period, length time.Duration) Law {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		a := simulation.Generator(seed, id, attempt)
		d := inMillis(lognormal(median, .4)(nil, a))
		if in := at % period; in < length && a.IntN(3) == 0 {
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
	if at%(20*second) < 4*second && Backend(seed, id, attempt, 3) == int(at/(20*second))%3 {
		d *= 8
	}
	return inMillis(d)
}

func Straggler(seed, id uint64, attempt int, _ time.Duration) time.Duration {
	return testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10).
		Draw(simulation.Generator(seed, id, attempt))
}

// again gives a hedge the latency of its primary plus 1 ms.
func again(seed, id uint64, attempt int, at time.Duration) time.Duration {
	d := Straggler(seed, id, 0, at)
	if attempt > 0 {
		d += ms
	}
	return d
}

func SlowTrickle(seed, id uint64, attempt int, at time.Duration) time.Duration {
	return SlowOnes(5, .45, 8)(seed, id, attempt, at)
}

func halfSecond(seed, id uint64, attempt int, at time.Duration) time.Duration {
	return SlowOnes(400, .3, 10)(seed, id, attempt, at)
}

// SlowOnes is lognormal, with one attempt in twenty slower by the factor times.
func SlowOnes(median, sigma, times float64) Law {
	usual := lognormal(median, sigma)
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		r := simulation.Generator(seed, id, attempt)
		d := usual(nil, r)
		if Chance(r, .05) {
			d *= times
		}
		return inMillis(d)
	}
}

// healthy draws the latency of an attempt without a fault, in ms.
func healthy(a *rand.Rand) float64 { return 5 * math.Exp(0.4*a.NormFloat64()) }

// sick applies the fault of a backend to the latency of an attempt, in ms. n is the number of
// backends.
func sick(n int, usual func(r, a *rand.Rand) float64,
	fault func(backend int, at time.Duration, d float64) float64) Law {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := usual(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt))
		return inMillis(fault(Backend(seed, id, attempt, n), at, d))
	}
}

func plainly(_, a *rand.Rand) float64 { return healthy(a) }

// slower is a fault that adds by ms on the first backend.
func slower(by float64) func(int, time.Duration, float64) float64 {
	return func(backend int, _ time.Duration, d float64) float64 {
		if backend == 0 {
			d += by
		}
		return d
	}
}

// frozen is a fault that stalls the first backend for length in each period, from the middle of the
// period on.
func frozen(length, period time.Duration) func(int, time.Duration, float64) float64 {
	return func(backend int, at time.Duration, d float64) float64 {
		if since := at%period - period/2; backend == 0 && since >= 0 && since < length {
			d += float64(length-since) / float64(ms)
		}
		return d
	}
}

// within reports whether a call begins while a backend is frozen.
func within(length, period time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at%period >= period/2 && at%period < period/2+length }
}

// sometimes is a law in which the given share of attempts takes slow ms more.
func sometimes(share, slow float64) Law {
	return OfRequest(func(_, a *rand.Rand) float64 {
		if Chance(a, share) {
			return slow + healthy(a)
		}
		return healthy(a)
	})
}

func sized(sigma float64) func(r, a *rand.Rand) float64 {
	return func(r, a *rand.Rand) float64 { return 5*math.Exp(sigma*r.NormFloat64()) + a.ExpFloat64() }
}

// queued is the service time of the bench's fleets.
func queued(seed, id uint64, attempt int, _ time.Duration) time.Duration {
	a := simulation.Generator(seed, id, attempt)
	d := 20 * math.Exp(.5*a.NormFloat64())
	if Chance(a, .02) {
		d *= 10
	}
	return inMillis(d)
}

func after(from time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at >= from }
}

// breathing changes the speed of all backends at the interval every, independently of hedges. 8% of
// attempts take 200 ms more.
func breathing(every time.Duration) Law {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		a := simulation.Generator(seed, id, attempt)
		d := healthy(a) * math.Exp(simulation.Generator(seed^77, uint64(at/every), 99).NormFloat64())
		if Chance(a, .08) {
			d += 200
		}
		return inMillis(d)
	}
}

// batches gives consecutive requests the same size, so that they are slow together. 8% of attempts
// take 200 ms more.
func batches(requests uint64) Law {
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		a := simulation.Generator(seed, id, attempt)
		d := healthy(a) * math.Exp(.5*simulation.Generator(seed^77, id/requests, 99).NormFloat64())
		if Chance(a, .08) {
			d += 200
		}
		return inMillis(d)
	}
}

// outages adds the latency of a healthy attempt to all attempts, and twenty times that during an
// outage of the given length in each period.
func outages(length, period time.Duration) Law {
	one, calm := sick(8, plainly, slower(100)), beside(length, period)
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := healthy(simulation.Generator(seed+1, id, attempt))
		if !calm(at) {
			d *= 20
		}
		return one(seed, id, attempt, at) + inMillis(d)
	}
}

// beside reports whether a call begins outside of outages.
func beside(length, period time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at%period < period/2 || at%period > period/2+length }
}

// Slowing makes the attempts of SlowTrickle slower by a factor from a time on.
func Slowing(from time.Duration, factor float64) Law {
	return func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		d := SlowTrickle(seed, id, attempt, at)
		if at >= from {
			d = time.Duration(factor * float64(d))
		}
		return d
	}
}

// same gives a hedge the latency of its primary.
func same(seed, id uint64, _ int, at time.Duration) time.Duration {
	return SlowTrickle(seed, id, 0, at)
}
