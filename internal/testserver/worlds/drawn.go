package worlds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// fewCalls have ten beyond p99.9. At low rates, simulations spend their time on choices.
const fewCalls = 12_000

// drawnWorld returns the world drawn by a seed.
func drawnWorld(seed uint64) World {
	r := simulation.Generator(seed, 11, 11)
	w := World{
		Kind: drawn,
		Rate: math.Round(math.Pow(10, 3.7*r.Float64())), Calls: 40_000,
		Budget: []float64{2, 5, 10, 10, 20, 30}[r.IntN(6)],
	}
	backends, sigma, usual := 3+r.IntN(8), .2+.4*r.Float64(), plainly
	name := []string{fmt.Sprintf("drawn %d: %v/s, budget %v%%, %d backends", seed, w.Rate, w.Budget, backends)}
	switch r.IntN(3) {
	case 0:
		sigma += .2
		usual = sized(sigma)
		name = append(name, fmt.Sprintf("sizes of sigma %.1f", sigma))
	default:
		usual = func(_, a *rand.Rand) float64 { return 5 * math.Exp(sigma*a.NormFloat64()) }
	}
	slow := math.Round(20 * math.Pow(10, 2*r.Float64()))
	var fault func(int, time.Duration, float64) float64
	few := false // calls are judged, so the result is noisy
	switch r.IntN(5) {
	case 0:
		fault = slower(slow)
		name = append(name, fmt.Sprintf("one %v ms slower", slow))
	case 1:
		period := time.Duration(20+r.IntN(60)) * second
		length := time.Duration(.02 + .4*r.Float64()*float64(period)).Round(100 * ms)
		fault, w.Calls = frozen(length, period), max(w.Calls, min(int(4*period.Seconds()*w.Rate), 100_000))
		w.Judged = within(length, period)
		few = length.Seconds()*float64(w.Calls)/period.Seconds() < 20_000
		name = append(name, fmt.Sprintf("one frozen %v in %v", length, period))
	case 2:
		share := .01 + .2*r.Float64()
		inner := usual
		usual = func(r, a *rand.Rand) float64 {
			if Chance(a, share) {
				return slow + inner(r, a)
			}
			return inner(r, a)
		}
		fault = func(_ int, _ time.Duration, d float64) float64 { return d }
		name = append(name, fmt.Sprintf("%.0f%% of attempts %v ms slower", 100*share, slow))
	case 3:
		period, times := time.Duration(60+r.IntN(120))*second, 3+7*r.Float64()
		fault = func(backend int, at time.Duration, d float64) float64 {
			if backend == 0 {
				d *= 1 + (times-1)*float64(at%period)/float64(period)
			}
			return d
		}
		name = append(name, fmt.Sprintf("one becomes %.0f times slower in %v, again and again", times, period))
	case 4:
		period := time.Duration(60+r.IntN(120)) * second
		fault = func(backend int, at time.Duration, d float64) float64 {
			d *= 1 + float64(at%period)/float64(period) // a ramp for all backends
			if backend == 0 && at%(2*period) >= period {
				d += slow
			}
			return d
		}
		name = append(name,
			fmt.Sprintf("all twice as slow in %v, and one %v ms slower each other time", period, slow))
	}
	if r.IntN(4) == 0 {
		w.Deadline = time.Duration(50*math.Pow(10, r.Float64()*1.5)) * ms
		name = append(name, fmt.Sprintf("deadline %v", w.Deadline))
	}
	if w.Rate < 10 && w.Judged == nil {
		w.Calls = fewCalls
	}
	w.Law, w.Name = sick(backends, usual, fault), strings.Join(name, ", ")
	w.Most, w.Short = fallsShort[seed], seed < 2
	if w.Most == 0 && (few || w.Rate < 10) {
		w.Most = 1.25
	}
	return w
}

// fallsShort bounds the ratio to the best in the drawn worlds, by seed, in which the trigger falls
// short. In most of them the share of slow calls is nearly the budget. In 2 hedges are withheld during
// the first fault, to learn.
var fallsShort = map[uint64]float64{0: 1.2, 1: 1.35, 2: 8.5, 3: 1.15, 4: 20, 9: 1.4, 13: 6, 14: 1.3, 18: 4.5, 21: 1.35}

// method is a part of a target's calls. Latency is median·exp(sigma·N), and a few attempts or
// requests are slower.
type method struct {
	weight        float64
	median, sigma float64 // ms
	ofRequest     bool    // N is the request's, with an attempt's own exp(median/5) beside it
	tail, slow    float64 // share of attempts that take slow times longer
	long, takes   float64 // share of requests that take this many ms on each backend
}

func (m method) draw(r, a *rand.Rand) float64 {
	d := m.median * math.Exp(m.sigma*a.NormFloat64())
	if m.ofRequest {
		d = m.median*math.Exp(m.sigma*r.NormFloat64()) + m.median/5*a.ExpFloat64()
	}
	if Chance(a, m.tail) {
		d *= m.slow
	}
	if r.Float64() < m.long {
		d += m.takes
	}
	return d
}

// logUniform draws a number between from and to with a uniformly distributed logarithm.
func logUniform(r *rand.Rand, from, to float64) float64 {
	return from * math.Pow(to/from, r.Float64())
}

// drawnTarget returns the target drawn by a seed: methods with different latencies that share a
// budget. The trigger was tuned on the seeds below 24.
func drawnTarget(seed uint64) World {
	r := simulation.Generator(seed, 13, 13)
	methods := make([]method, 2+r.IntN(11))
	rate := math.Round(logUniform(r, 1, 5000))
	sum := 0.0
	long, takes := max(.005*r.Float64()-.002, 0), logUniform(r, 500, 30_000)
	for i := range methods {
		m := method{
			weight:    r.ExpFloat64() + .05,
			median:    logUniform(r, 1, 50),
			sigma:     .2 + .4*r.Float64(),
			ofRequest: r.IntN(4) == 0,
		}
		if r.IntN(2) == 0 {
			m.tail, m.slow = logUniform(r, .01, .2), logUniform(r, 4, 100)
		}
		m.long, m.takes = long, takes
		sum += m.weight
		methods[i] = m
	}
	pick := func(seed, id uint64) int {
		x := simulation.Generator(seed, id, -4).Float64() * sum
		for i, m := range methods {
			if x -= m.weight; x < 0 {
				return i
			}
		}
		return 0
	}
	name := []string{fmt.Sprintf("target %d: %d methods, %v/s", seed, len(methods), rate)}
	if long > 0 {
		name = append(name, fmt.Sprintf("%.2f%% of requests take %.1f s", 100*long, takes/1000))
	}
	w := World{Kind: untuned, Rate: rate, Method: pick, Short: seed/3 == 3,
		Calls: int(max(fewCalls, min(2000*rate, 20_000), min(20*rate, 60_000)))}
	if seed < 24 {
		w.Kind = tuned
	}
	fault := func(_ int, _ time.Duration, d float64) float64 { return d }
	backends := 3 + r.IntN(8)
	switch r.IntN(5) {
	case 0: // slow bursts
		w.Gathered, w.Every = int(logUniform(r, 20, 1000)), time.Duration(logUniform(r, 10, 120)*float64(second)).
			Round(second)
		for i := range methods {
			methods[i].median *= 20
		}
		name[0] = fmt.Sprintf("target %d: %d methods, %d calls each %v", seed, len(methods), w.Gathered, w.Every)
	case 1: // a client in a fleet
		mean := 0.0
		for i := range methods {
			m := &methods[i]
			m.slow = min(m.slow, 20)
			m.long = 0
			mean += m.weight / sum * m.median * math.Exp(m.sigma*m.sigma/2) * (1 + m.tail*max(m.slow-1, 0))
		}
		w.Clients, w.Servers = 3+r.IntN(28), Servers{Count: 3 + r.IntN(18), Workers: 4, Stop: r.IntN(2) == 0}
		use := .2 + .6*r.Float64()
		w.Rate = use * float64(w.Servers.Count*w.Servers.Workers) / mean * 1000
		name = []string{
			fmt.Sprintf("target %d: %d methods, %d clients, %d servers at %.0f%%, stop %v, %.0f/s", seed,
				len(methods), w.Clients, w.Servers.Count, 100*use, w.Servers.Stop, w.Rate),
		}
	case 2: // a backend that freezes periodically
		period := time.Duration(20+r.IntN(60)) * second
		length := time.Duration(logUniform(r, .02, .2) * float64(period)).Round(100 * ms)
		fault, w.Judged = frozen(length, period), within(length, period)
		w.Calls = int(min(max(20_000, 4*period.Seconds()*rate), 100_000))
		name = append(name, fmt.Sprintf("one of %d backends frozen %v in %v", backends, length, period))
	case 3:
		by := math.Round(logUniform(r, 20, 2000))
		fault = slower(by)
		name = append(name, fmt.Sprintf("one of %d backends %v ms slower", backends, by))
	}
	w.Law = func(seed, id uint64, attempt int, at time.Duration) time.Duration {
		m := methods[pick(seed, id)]
		d := m.draw(simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt))
		return inMillis(fault(Backend(seed, id, attempt, backends), at, d))
	}
	for _, m := range methods {
		w.Medians = append(w.Medians, m.median)
	}
	w.Name = strings.Join(name, ", ")
	return w
}
