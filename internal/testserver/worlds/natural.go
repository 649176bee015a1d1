package worlds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// Natural returns worlds of stragglers in which the latency depends on the request too, which biases
// an estimate from primaries that hedges cut short.
func Natural() []World {
	world := func(name string, law Law) World { return World{Name: name, Kind: requests, Law: law, Rate: 200} }
	all := []World{world("stragglers", SlowTrickle)}
	for _, long := range []struct{ percent, seconds float64 }{{.03, 10}, {.1, 1}, {.1, 5}, {.2, 2}, {.5, 2}} {
		name := fmt.Sprintf("stragglers, %v%% of requests take %v s", long.percent, long.seconds)
		all = append(all, world(name, func(seed, id uint64, attempt int, at time.Duration) time.Duration {
			if Chance(simulation.Generator(seed, id, -1), long.percent/100) {
				return inMillis(1000 * long.seconds)
			}
			return SlowTrickle(seed, id, attempt, at)
		}))
	}
	return append(all,
		world("stragglers of sizes with sigma 1", OfRequest(func(r, a *rand.Rand) float64 {
			d := 5 * math.Exp(r.NormFloat64()+.1*a.NormFloat64())
			if Chance(a, .05) {
				d *= 8
			}
			return d
		})),
		world("both attempts wait for one thing", oneThing))
}

// oneThing has all attempts wait for the same thing, which is held for 50 ms of each second.
func oneThing(seed, id uint64, attempt int, at time.Duration) time.Duration {
	return inMillis(stalled(at%second, 50*ms)) + inMillis(lognormal(5, .45)(nil, simulation.Generator(seed, id, attempt)))
}
