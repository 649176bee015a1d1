package workload

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/internal/testserver"
)

// Fleet is many clients of the same servers, each with a scheduler of its own, and the load that
// they offer together.
type Fleet struct {
	Clients int
	// Busy is how many of the clients make half of all calls; 0: all make as many.
	Busy int
	// Deadline is the time that each call has. A call that misses it counts as failed, and fails no
	// run: overloads are part of it.
	Deadline time.Duration
	// StopsCancelled has servers stop work that is cancelled; otherwise its worker is busy to the
	// end.
	StopsCancelled bool
	Steps          []Step
	// SlowServer is how many times longer work takes on the first server; 0: as long as on the
	// others.
	SlowServer float64

	capacity float64 // attempts a second that keep all workers busy
}

// Step is a time for which the load stays the same.
type Step struct {
	Name  string
	Load  float64 // as a share of the capacity
	Takes time.Duration
}

// Work in a fleet is lognormal with a median of 20 ms and sigma 0.5; one attempt in fifty takes ten
// times as long.
const (
	fleetDistribution = "lognormal:22.66ms,12.08ms"
	fleetMean         = 22.66e-3 * (1 + fleetSlow*(fleetFactor-1)) // seconds
	fleetSlow         = 0.02
	fleetFactor       = 10
	fleetServers      = 20
	fleetWorkers      = 4
	fleetDeadline     = time.Second
	slowServer        = 10
)

// Names of steps that the report looks for.
const (
	Overload = "130%, an overload"
	Before   = "70%"
)

const stepTakes = 10 * time.Second

// loadSteps go up to 90% of the capacity and through an overload. In the first one all clients are
// new.
var loadSteps = []Step{
	{"30%, new clients", 0.30, stepTakes}, {"30%", 0.30, stepTakes}, {"50%", 0.50, stepTakes}, {"80%", 0.80,
		stepTakes}, {"90%", 0.90, stepTakes},
	{Before, 0.70, stepTakes}, {Overload, 1.30, 20 * time.Second}, {"70%, after it", 0.70, 20 * time.Second},
}

// someSteps are for a fleet with a peculiarity.
var someSteps = []Step{{"30%, new clients", 0.30, stepTakes}, {"30%", 0.30, stepTakes}, {"50%", 0.50, stepTakes},
	{"80%", 0.80, stepTakes}}

// quietSteps are of 1,000 clients that make one call a second each.
var quietSteps = []Step{
	{"the first minute", 1000 / fleetCapacity, time.Minute}, {"the second", 1000 / fleetCapacity, time.Minute}, {
		"the third", 1000 / fleetCapacity, time.Minute},
}

const fleetCapacity = fleetServers * fleetWorkers / fleetMean

// inFleet returns the workload of a fleet, under the policies that all fleets are compared under
// and more.
func inFleet(name, about string, f Fleet, more ...string) Workload {
	f.Deadline = fleetDeadline
	w := Workload{
		Name: name, About: about, Distribution: fleetDistribution, Call: unary, backends: fleetServers, Workers: fleetWorkers,
		Policies: append([]string{policy.None, "static-50ms", policy.Adaptive, "failsafe-go"}, more...),
	}
	return w.WithFleet(f)
}

// WithFleet returns the workload of a fleet with other clients and another load.
func (w Workload) WithFleet(f Fleet) Workload {
	f.capacity = float64(w.backends*w.Workers) / fleetMean
	w.Fleet = &f
	w.Plan, w.Arrivals, w.Parts, w.Virtual = f.plan, f.arrivals, f.parts(), Size{f.calls(), 1}
	return w
}

// shortFleet is what part of the clients, of the servers and of the time a short run has.
const (
	shortFleet = 5
	shortSteps = 4
)

func (w Workload) shortenFleet() Workload {
	f := *w.Fleet
	f.Clients, f.Busy = f.Clients/shortFleet, (f.Busy+shortFleet-1)/shortFleet
	f.Steps = slices.Clone(f.Steps)
	for i := range f.Steps {
		f.Steps[i].Takes /= shortSteps
	}
	w.backends /= shortFleet
	return w.WithFleet(f)
}

func (f Fleet) plan(m Moment) testserver.Plan {
	delay := m.Draw(testserver.Straggler(m.distribution, fleetSlow, fleetFactor))
	if f.SlowServer > 0 && m.Backend == 0 {
		delay = time.Duration(f.SlowServer * float64(delay))
	}
	return testserver.Plan{Delay: delay}
}

// weight is how many calls a step has.
func (f Fleet) weight(s Step) float64 { return s.Load * f.capacity * s.Takes.Seconds() }

func (f Fleet) calls() int {
	calls := 0.0
	for _, s := range f.Steps {
		calls += f.weight(s)
	}
	return int(calls + 0.5)
}

// shares returns which share of all calls there are up to the end of each step.
func (f Fleet) shares() []float64 {
	shares := make([]float64, len(f.Steps))
	upTo := 0.0
	for i, s := range f.Steps {
		upTo += f.weight(s)
		shares[i] = upTo
	}
	for i := range shares {
		shares[i] /= upTo
	}
	return shares
}

// callsUpTo is a share of a number of calls, rounded.
func callsUpTo(share float64, calls int) int { return int(share*float64(calls) + 0.5) }

// Times returns when each step of a run ends, given the number of calls. With fewer calls than a
// full run has, steps are shorter.
func (f Fleet) Times(calls int) []time.Duration {
	times := make([]time.Duration, len(f.Steps))
	share, at := float64(calls)/float64(f.calls()), time.Duration(0)
	for i, s := range f.Steps {
		at += time.Duration(share * float64(s.Takes))
		times[i] = at
	}
	return times
}

// arrivals starts the calls of each step at random in its time, no two at the same instant.
func (f Fleet) arrivals(rng *rand.Rand, calls int) []time.Duration {
	at := make([]time.Duration, 0, calls)
	times, from := f.Times(calls), time.Duration(0)
	for i, share := range f.shares() {
		first := len(at)
		for len(at) < callsUpTo(share, calls) {
			at = append(at, from+time.Duration(rng.Int64N(int64(max(times[i]-from, 1)))))
		}
		slices.Sort(at[first:])
		from = times[i]
	}
	for n := range at[min(1, len(at)):] {
		at[n+1] = max(at[n+1], at[n]+1)
	}
	return at
}

// Callers returns which client makes each call.
func (f Fleet) Callers(rng *rand.Rand, calls int) []int {
	callers := make([]int, calls)
	for n := range callers {
		switch {
		case f.Busy > 0 && rng.Float64() < 0.5:
			callers[n] = rng.IntN(f.Busy)
		default:
			callers[n] = f.Busy + rng.IntN(f.Clients-f.Busy)
		}
	}
	return callers
}

// parts returns the steps as parts of a run.
func (f Fleet) parts() []Part {
	var parts []Part
	from := 0.0
	for i, upTo := range f.shares() {
		first := from
		parts = append(parts, Part{f.Steps[i].Name, func(n, calls int) bool {
			return n >= callsUpTo(first, calls) && n < callsUpTo(upTo, calls)
		}})
		from = upTo
	}
	return parts
}
