package followup_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/feature/followup"
)

const ms = float64(time.Millisecond)

// distribution draws at what age of a call, in ms, its primary answers, and its hedge if one is sent at the age delay.
type distribution func(r *rand.Rand, delay float64) (primary, hedge float64)

// of is a distribution with a part that both attempts of a call have in common, and one that each has of its own.
func of(common func(*rand.Rand) float64, own func(r *rand.Rand, common float64) float64) distribution {
	return func(r *rand.Rand, delay float64) (float64, float64) {
		c := common(r)
		return own(r, c), delay + own(r, c)
	}
}

// independent is a distribution of attempts that have nothing in common.
func independent(own func(r *rand.Rand) float64) distribution {
	return func(r *rand.Rand, delay float64) (float64, float64) { return own(r), delay + own(r) }
}

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func lognormal(r *rand.Rand, median, sigma float64) float64 {
	return median * math.Exp(sigma*r.NormFloat64())
}

func sizes(sigma float64) distribution {
	return of(func(r *rand.Rand) float64 { return lognormal(r, 5, sigma) }, func(r *rand.Rand, c float64) float64 {
		d := c + r.ExpFloat64()
		if chance(r, 0.02) {
			d += 200
		}
		return d
	})
}

// oneProcessor is a queue that both attempts join: they end within a millisecond of each other.
func oneProcessor(wait func(r *rand.Rand) float64) distribution {
	return func(r *rand.Rand, delay float64) (float64, float64) {
		c := wait(r)
		return c + r.Float64(), max(delay, c+r.Float64())
	}
}

var (
	straggler = independent(func(r *rand.Rand) float64 {
		d := lognormal(r, 5, 0.45)
		if chance(r, 0.02) {
			d *= 10
		}
		return d
	})
	plain  = independent(func(r *rand.Rand) float64 { return lognormal(r, 5, 0.45) })
	pareto = independent(func(r *rand.Rand) float64 { return 3 * math.Pow(1-r.Float64(), -1/1.5) })
	queue  = func(r *rand.Rand) float64 { return 1 + 8*r.ExpFloat64() }
	heavy2 = of(func(r *rand.Rand) float64 {
		if chance(r, 0.10) {
			return 8
		}
		return 1
	}, func(r *rand.Rand, c float64) float64 {
		d := c * lognormal(r, 5, 0.45)
		if chance(r, 0.02) {
			d += 100
		}
		return d
	})
)

// named are the distributions that estimates are measured on.
var named = []struct {
	name string
	draw distribution
}{
	{"straggler", straggler},
	{"sizes", sizes(1)},
	{"sizes 1.5", sizes(1.5)},
	{"tenants", of(func(r *rand.Rand) float64 { // twenty tenants, whose scales are lognormal
		return math.Exp(0.9 * math.Erfinv(2*(float64(r.IntN(20))+0.5)/20-1) * math.Sqrt2)
	}, func(r *rand.Rand, c float64) float64 {
		d := c * lognormal(r, 5, 0.3)
		if chance(r, 0.03) {
			d *= 8
		}
		return d
	})},
	{"half", of(func(r *rand.Rand) float64 { // of each slow call, half is the request and half is chance
		return lognormal(r, 1, 0.7)
	}, func(r *rand.Rand, c float64) float64 { return c * lognormal(r, 5, 0.7) })},
	{"heavy+2%", heavy2},
	{"pareto", pareto},
	{"plain", plain},
	{"queues", independent(queue)},
}

// world makes the calls of a client.
type world struct {
	m      *followup.Method
	rng    *rand.Rand
	draw   distribution
	rate   float64       // calls a second
	late   float64       // a hedge is due at this quantile, and at 0.994 where there is nothing to gain
	limit  time.Duration // the deadline of a call; 0: none
	delays [2]float64

	now      time.Time
	draws    []int // the calls that were drawn
	calls    int
	hedges   int
	followed int
	helped   int       // calls that were spared more than a twentieth
	saved    float64   // by all calls, in ms
	waits    []float64 // of all calls, in ms
	running  losers
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(seed uint64, draw distribution, rate float64) *world {
	w := &world{m: followup.New(5, 0.99, seed, nil, new(followup.Room)), rng: rand.New(rand.NewPCG(seed, 1)), rate: rate, late: 0.92, now: start}
	w.change(draw)
	return w
}

// change changes what attempts take, and the delays with it.
func (w *world) change(draw distribution) {
	w.draw = draw
	x := primaries(draw, 40_000)
	w.delays = [2]float64{x[int(w.late*float64(len(x)))], x[int(0.994*float64(len(x)))]}
}

// primaries are what so many primaries take, in ascending order.
func primaries(draw distribution, n int) []float64 {
	rng, x := rand.New(rand.NewPCG(7, 7)), make([]float64, n)
	for i := range x {
		x[i], _ = draw(rng, 0)
	}
	slices.Sort(x)
	return x
}

func inMillis(x float64) time.Duration { return time.Duration(x * ms) }

// call makes one call.
func (w *world) call() {
	w.now = w.now.Add(inMillis(1000 * w.rng.ExpFloat64() / w.rate))
	for len(w.running) > 0 && !w.running[0].end.After(w.now) {
		w.end(heap.Pop(&w.running).(loser))
	}
	delay := w.delays[0]
	if w.m.NothingToGain() {
		delay = w.delays[1]
	}
	primary, hedge := w.draw(w.rng, delay)
	w.calls++
	x, wait := inMillis(primary), inMillis(min(primary, hedge))
	drawn := w.m.Draw()
	if drawn > 0 {
		w.draws = append(w.draws, w.calls)
	}
	c := followup.Call{Share: drawn, Wait: wait, Late: primary > delay, CutShort: wait < x}
	if c.Late {
		c.Hedges = 1
		w.hedges++
	}
	w.waits = append(w.waits, min(primary, hedge))
	if c.CutShort {
		w.saved += primary - hedge
		if primary-hedge > 0.05*primary {
			w.helped++
		}
	}
	if w.limit > 0 && wait > w.limit {
		c.Wait, c.GaveUp, c.CutShort = w.limit, true, false
	}
	if l := w.m.Add(w.now.Add(c.Wait), c); l != nil {
		w.followed++
		heap.Push(&w.running, loser{l, w.now.Add(x), x})
	}
}

func (w *world) end(l loser) {
	if answered := w.limit == 0 || l.took <= w.limit; answered {
		w.m.Followed(l.end, l.Loser, l.took, true)
	} else {
		w.m.Followed(l.end, l.Loser, w.limit, false)
	}
}

// run makes calls for so long.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.call()
	}
}

// until makes calls until the verdict is the given one, for ten minutes at most, and returns how long that took.
func (w *world) until(nothing bool) time.Duration {
	since := w.now
	for w.m.NothingToGain() != nothing && w.now.Sub(since) < 10*time.Minute {
		w.run(time.Second)
	}
	return w.now.Sub(since)
}

// drawn is the share of calls that were drawn among the first 200, or from one on.
func (w *world) drawn(from int) float64 {
	n, to := 0, w.calls
	if from == 0 {
		to = 200
	}
	for _, call := range w.draws {
		if from < call && call <= to {
			n++
		}
	}
	return float64(n) / float64(to-from)
}

type loser struct {
	*followup.Loser
	end  time.Time
	took time.Duration
}

type losers []loser

func (l losers) Len() int           { return len(l) }
func (l losers) Less(i, j int) bool { return l[i].end.Before(l[j].end) }
func (l losers) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *losers) Push(x any)        { *l = append(*l, x.(loser)) }
func (l *losers) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}
