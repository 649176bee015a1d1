package budget_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// attemptDistribution is how long an attempt takes that is sent at a time.
type attemptDistribution func(r *rand.Rand, at time.Duration) time.Duration

// slowTrickle is lognormal around 5 ms, and eight times that for 5% of attempts.
func slowTrickle(r *rand.Rand, _ time.Duration) time.Duration { return straggling(r, 5, 0.45, 8) }

// halfSecond is lognormal around 400 ms, and ten times that for 5% of attempts.
func halfSecond(r *rand.Rand, _ time.Duration) time.Duration { return straggling(r, 400, 0.3, 10) }

func straggling(r *rand.Rand, median, sigma, factor float64) time.Duration {
	d := median * math.Exp(sigma*r.NormFloat64())
	if r.Float64() < 0.05 {
		d *= factor
	}
	return time.Duration(d * float64(time.Millisecond))
}

// slower is a distribution whose attempts take so much longer if they are sent between two times.
func slower(l attemptDistribution, by, from, to time.Duration) attemptDistribution {
	return func(r *rand.Rand, at time.Duration) time.Duration {
		d := l(r, at)
		if at >= from && at < to {
			d += by
		}
		return d
	}
}

// beyond is what a share of a distribution's attempts takes longer than.
func beyond(l attemptDistribution, share float64) time.Duration {
	r := rand.New(rand.NewPCG(5, 5))
	took := make([]time.Duration, 200_000)
	for i := range took {
		took[i] = l(r, 0)
	}
	slices.Sort(took)
	return took[int((1-share)*float64(len(took)))]
}

// client makes calls and hedges them after a delay that is given, by a clock of its own. When a hedge is sent is decided as
// hcall.Call.Admit does.
type client struct {
	distribution attemptDistribution
	begins       []time.Duration // when each call does
	delay        time.Duration
	hedges       int           // the most of one call
	deadline     time.Duration // of a call; 0: none
	seed         uint64
}

const percent = 10 // of each client's budget

// call is one that has ended.
type call struct {
	began, took time.Duration
	sent        []time.Duration // when each hedge was
	over        bool
}

type event struct {
	at   time.Duration
	call *call
	what int // the attempt that ends, or one of the following
}

const (
	due = -1 - iota
	late
)

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// run returns the calls in the order in which they began.
func (c client) run() []call {
	b := budget.New(percent)
	primaries, hedges := rand.New(rand.NewPCG(c.seed, 1)), rand.New(rand.NewPCG(c.seed, 2))
	ended := make([]call, len(c.begins))
	var queue events
	push := func(at time.Duration, call *call, what int) { heap.Push(&queue, event{at, call, what}) }
	for next := 0; next < len(ended) || len(queue) > 0; {
		if next < len(ended) && (len(queue) == 0 || c.begins[next] <= queue[0].at) {
			call, now := &ended[next], c.begins[next]
			next++
			call.began = now
			b.Earn(at(now), 1)
			push(now+c.distribution(primaries, now), call, 0)
			if c.hedges > 0 {
				push(now+c.delay, call, due)
			}
			if c.deadline > 0 {
				push(now+c.deadline, call, late)
			}
			continue
		}
		e := heap.Pop(&queue).(event)
		call, age := e.call, e.at-e.call.began
		switch {
		case call.over:
		case e.what != due:
			call.over, call.took = true, age
			if len(call.sent) > 0 {
				b.Hedged(e.what > 0)
			}
		case pays(b, at(e.at), len(call.sent) > 0 || age >= 2*c.delay):
			call.sent = append(call.sent, e.at)
			push(e.at+c.distribution(hedges, e.at), call, len(call.sent))
			if len(call.sent) < c.hedges {
				push(e.at+c.delay, call, due)
			}
		default:
			push(e.at+max(c.wait(age), 250*time.Microsecond), call, due)
		}
	}
	return ended
}

// wait is after how long a hedge is considered again, as hcall.Call.postpone says.
func (c client) wait(age time.Duration) time.Duration {
	switch {
	case age < 2*c.delay:
		return min(age/8, 2*c.delay-age)
	case age < 3*c.delay:
		return 3*c.delay - age
	}
	return age
}

func p99(calls []call) float64 {
	took := make([]time.Duration, len(calls))
	for i, c := range calls {
		took[i] = c.took
	}
	slices.Sort(took)
	return float64(took[int(0.99*float64(len(took)))])
}

// within counts the calls that began between two times, and the hedges sent then.
func within(ended []call, from, to time.Duration) (calls, hedges int) {
	for _, c := range ended {
		if c.began >= from && c.began < to {
			calls++
		}
		for _, sent := range c.sent {
			if sent >= from && sent < to {
				hedges++
			}
		}
	}
	return calls, hedges
}
