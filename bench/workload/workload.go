// Package workload has the table of workloads: the calls of a client, the latency of an attempt at
// the server, and the number of calls.
package workload

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// Workload is a kind of call, how long an attempt of it takes, and how it is measured.
type Workload struct {
	Name         string
	About        string // in a few words
	Distribution string // as testserver.ParseDistribution reads it
	Call         call

	// Turn is how many calls each caller makes before the next policy has its turn, in real time.
	// All turns together take under 2 s, the time that a budget remembers. 0: a policy makes all
	// its calls before the next one starts.
	Turn int
	// AtOnce runs the policies at the same time: for calls so slow, or so rare, that the machine is
	// idle.
	AtOnce bool

	// Plan plans the server's answer to an attempt; nil: it answers after a time drawn from the
	// distribution.
	Plan func(Moment) testserver.Plan
	// Over changes the distribution in the course of a run: a draw is multiplied by factor, then
	// plus is added; nil: no change.
	Over func(at, run time.Duration) (factor float64, plus time.Duration)
	// Arrivals returns when each call starts, relative to the start of the run; nil: a call starts
	// when a caller is free.
	Arrivals func(rng *rand.Rand, calls int) []time.Duration
	// Fan is how many servers, each a target of its own, a request calls at once. The request is as
	// slow as the slowest. 0: one call to one target.
	Fan int
	// backends is how many stand behind a target, 0 for 3. Workers is how many attempts each serves
	// at a time, 0 for no limit.
	backends, Workers int
	// Sparse marks arrivals with no call in most seconds: there is nothing to show second by
	// second.
	Sparse bool
	// Elsewhere makes hedges go to another backend than the attempts before them, by the balancing
	// policy hedge_other_backend over round_robin; otherwise all attempts go where round_robin
	// sends them.
	Elsewhere bool
	// HTTP makes the calls HTTP requests, and streams server-sent events, through a gateway that
	// calls the backends.
	HTTP bool
	// Second adds a second destination to which hedges can go. Calls may fail: a failed call counts as
	// one that takes FailedTakes.
	Second bool
	// Fleet, if not nil, is who makes the calls; otherwise it is one client.
	Fleet *Fleet
	// Parts are groups of calls that are also reported separately.
	Parts []Part

	// The sizes of a full run by each clock. With 0 calls the workload does not run by that clock.
	Virtual, Real Size
	// Policies are compared in a full run, the ones worth a curve first. RealPolicies, if any,
	// replace them in real time.
	Policies, RealPolicies []string
}

// Servers is how many backends stand behind a target.
func (w Workload) Servers() int { return cmp.Or(w.backends, 3) }

// HasCourse reports whether a run is shown second by second.
func (w Workload) HasCourse() bool { return w.Arrivals != nil && !w.Sparse }

// Size is how many calls are made, and how many of them at a time.
type Size struct{ Calls, Concurrency int }

// Part is a named group of the calls of a run.
type Part struct {
	Name string
	Has  func(n, calls int) bool
}

// Moment is the input of a plan.
type Moment struct {
	testserver.Attempt
	distribution testserver.Distribution
	Destination  int // 1 for the second
	seed         uint64
	at, run      time.Duration // since the run began, and how long it is to last where that is known
}

// inTraffic are the policies of workloads that resemble real traffic: a fixed delay that fits,
// ours, percentiles and a peer.
func inTraffic(fixed string) []string {
	return []string{policy.None, fixed, policy.Adaptive, "adaptive-p90", "adaptive-p95", "failsafe-go"}
}

var tuned = []string{"adaptive-1", "adaptive-2", "adaptive-3", "adaptive-p80", "adaptive-p90", "adaptive-p95",
	"failsafe-go-2"}

// All has every workload. To add one, add an entry here: -workload and the report then know it.
var All = []Workload{
	{
		Name: "straggler", About: "mostly 5 ms; one attempt in twenty takes ten times as long",
		Distribution: "straggler", Call: unary, Turn: 25,
		Virtual: Size{50_000, 20}, Real: Size{50_000, 20},
		Policies: append([]string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "failsafe-go",
			"static-1s"}, tuned...),
		RealPolicies: []string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "adaptive-p90", "failsafe-go"},
	},
	{
		Name: "ttft", About: "token streams: headers at once, first token late in one of five",
		Distribution: "ttft", Call: tokens, Turn: 10, AtOnce: true,
		Plan: func(m Moment) testserver.Plan {
			return testserver.Plan{Delay: m.Draw(m.distribution), HeaderAtOnce: true, Interval: time.Millisecond}
		},
		Virtual: Size{50_000, 20}, Real: Size{20_000, 20},
		Policies: []string{policy.None, "headers-p90", "static-50ms", policy.Adaptive, "adaptive-30%",
			"adaptive-3-30%", "adaptive-p75-30%", "adaptive-p80", "adaptive-p90"},
		RealPolicies: []string{policy.None, "headers-p90", "static-50ms", policy.Adaptive, "adaptive-3-30%", "adaptive-p90"},
	},
	{
		Name: "http-straggler", About: "straggler as HTTP requests, over HTTP/1.1 and HTTP/2",
		Distribution: "straggler", Call: unary, Turn: 25, HTTP: true,
		Virtual: Size{20_000, 20}, Real: Size{20_000, 20},
		// the peer's goroutines outlive a run, which virtual time does not allow
		Policies: []string{policy.None, policy.Adaptive, "none-h2", "adaptive-h2"},
		RealPolicies: []string{policy.None, policy.Adaptive, "hedgedhttp-10ms", "hedgedhttp-50ms", "none-h2",
			"adaptive-h2", "hedgedhttp-10ms-h2", "hedgedhttp-50ms-h2"},
	},
	{
		Name: "http-ttft", About: "ttft as server-sent events, over HTTP/1.1 and HTTP/2", Distribution: "ttft",
		Call: tokens, Turn: 10, HTTP: true,
		Plan: func(m Moment) testserver.Plan {
			return testserver.Plan{Delay: m.Draw(m.distribution), HeaderAtOnce: true, Interval: time.Millisecond}
		},
		Virtual: Size{10_000, 20}, Real: Size{10_000, 20},
		Policies: []string{policy.None, policy.Adaptive, "adaptive-3-30%", "none-h2", "adaptive-h2", "adaptive-3-30%-h2"},
		RealPolicies: []string{policy.None, policy.Adaptive, "adaptive-3-30%", "hedgedhttp-50ms", "none-h2",
			"adaptive-h2", "adaptive-3-30%-h2", "hedgedhttp-50ms-h2"},
	},
	{
		Name: "grpc-java", About: "mostly 2 ms; one call in ten takes 2, 5 or 10 s more",
		Distribution: "grpc-java", Call: unary,
		Virtual: Size{2_000, 20}, Real: Size{2_000, 20},
		Policies: []string{policy.None, "static-1s", policy.Adaptive, "adaptive-15%", "adaptive-3-20%",
			"failsafe-go", "static-10ms", "adaptive-p85-15%", "adaptive-p80", "adaptive-p90"},
		RealPolicies: []string{policy.None, "static-1s", policy.Adaptive, "adaptive-15%", "adaptive-3-20%",
			"failsafe-go", "adaptive-p90"},
	},
	{
		Name: "slow-one-percent", About: "7 ms; 1.3% of attempts take 600 to 1,000 ms",
		Distribution: "slow-one-percent", Call: unary, AtOnce: true,
		Virtual: Size{20_000, 20}, Real: Size{20_000, 10},
		Policies: append([]string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "failsafe-go",
			"adaptive-5%", "static-1s"}, tuned...),
		RealPolicies: []string{policy.None, "static-50ms", policy.Adaptive, "adaptive-5%", "adaptive-p90", "failsafe-go"},
	},
	{
		Name: "pareto", About: "a heavy tail: 3 ms · U^(−1/1.5)", Distribution: "pareto", Call: unary, Turn: 20,
		Virtual: Size{50_000, 20}, Real: Size{20_000, 20},
		Policies: append([]string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "failsafe-go",
			"static-1s"}, tuned...),
		RealPolicies: []string{policy.None, "static-10ms", policy.Adaptive, "adaptive-p90", "failsafe-go"},
	},
	{
		Name: "fan-out", About: "a request is 100 calls at once, one to each of 100 servers; 1% of attempts take " +
			"ten times as long", Distribution: "fan-out", Call: unary,
		Fan: 100, backends: 1, Virtual: Size{10_000, 1},
		Policies: []string{policy.None, "static-10ms", policy.Adaptive, "failsafe-go"},
	},
	{
		Name: "mixed", About: "two methods of one target, one of 2 ms and one of 200 ms",
		Distribution: "lognormal:2ms,500us", Call: ofTwoMethods,
		Plan: planMixed, Virtual: Size{20_000, 20},
		Parts:    []Part{{"fast method", isOdd(false)}, {"slow method", isOdd(true)}},
		Policies: []string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "failsafe-go", "adaptive-p90"},
	},
	{
		Name: "shift", About: "straggler at 500 calls a second, four times as slow in the second third " +
			"of the run", Distribution: "straggler", Call: unary,
		Over: inSecondThird(4, 0), Arrivals: metronome(2 * time.Millisecond), Parts: thirds, Virtual: Size{45_000, 1},
		Policies: []string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "failsafe-go", "adaptive-p90"},
	},
	{
		Name: "outage", About: "straggler at 500 calls a second, every attempt 1 s slower in the second third " +
			"of the run", Distribution: "straggler", Call: unary,
		Over: inSecondThird(1, time.Second), Arrivals: metronome(2 * time.Millisecond), Parts: aroundOutage,
		Virtual: Size{45_000, 1},
		Policies: []string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "failsafe-go",
			"adaptive-p90", "static-1s"},
	},
	{
		Name: "correlated", About: "one request in ten is slow on every backend",
		Distribution: "lognormal:5ms,2ms", Call: unary,
		Plan: planCorrelated, Virtual: Size{50_000, 20},
		Policies: []string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "failsafe-go",
			"adaptive-p90", "adaptive-p95", "adaptive-1"},
	},
	{
		Name: "sizes", About: "500 calls a second, with requests of different size: half take over 5 ms, 1% over 50 ms; 2% " +
			"of attempts take 200 ms more",
		Distribution: "exponential:1ms", Call: unary, AtOnce: true,
		Plan: planSizes, Arrivals: poissonSteps(500), Virtual: Size{45_000, 1}, Real: Size{15_000,
			1}, Policies: inTraffic("static-50ms"),
	},
	{
		Name: "heavy", About: "500 calls a second; one request in ten is eight times as slow on every backend, " +
			"and 2% of attempts take 100 ms more",
		Distribution: "lognormal:5.533ms,2.621ms", Call: unary, AtOnce: true, // median 5 ms, sigma 0.45
		Plan: planHeavy, Arrivals: poissonSteps(500), Virtual: Size{45_000, 1}, Real: Size{15_000,
			1}, Policies: inTraffic("static-50ms"),
	},
	{
		Name: "stalls", About: "500 calls a second of 1 ms; one of three backends is stalled for 1 s in 5; " +
			"this library's hedges go to another backend",
		// median 1 ms, sigma 0.5
		Distribution: "lognormal:1.133ms,604us", Call: unary, AtOnce: true, Elsewhere: true, backends: stallBackends,
		Plan: planStalls, Arrivals: poissonSteps(500), Virtual: Size{45_000, 1}, Real: Size{15_000,
			1}, Policies: inTraffic("static-10ms"),
	},
	regions, providers,
	{
		// median 5 ms, sigma 0.45
		Name: "slow-trickle", About: "one call a second; one attempt in twenty takes eight times as long",
		Distribution: "lognormal:5.533ms,2.621ms", Call: unary,
		Plan: planTrickle, Arrivals: poissonSteps(1), Sparse: true, Virtual: Size{6_000,
			1}, Policies: inTraffic("static-10ms"),
	},
	{
		Name: "bursts", About: "the calls of slow-trickle, 100 at once every minute",
		Distribution: "lognormal:5.533ms,2.621ms", Call: unary,
		Plan: planTrickle, Arrivals: bursts(100, time.Minute), Sparse: true, Virtual: Size{6_000,
			1}, Policies: inTraffic("static-10ms"),
	},
	{
		Name: "saturated", About: "one backend of 4 workers and a queue, at 70% load and then at 95%",
		Distribution: "exponential:8ms", Call: unary,
		backends: 1, Workers: 4, Arrivals: poissonSteps(0.70*4/0.008, 0.95*4/0.008), Parts: loads, Virtual: Size{49_500, 1},
		Policies: []string{policy.None, "static-10ms", "static-50ms", policy.Adaptive, "failsafe-go",
			"adaptive-p90", "adaptive-p95", "adaptive-1"},
	},
	inFleet("fleet", "100 clients on 20 servers of 4 workers and a queue, at 30% to 90% load and through an "+
		"overload; servers stop canceled work",
		Fleet{Clients: 100, StopsCancelled: true, Steps: loadSteps}, "static-200ms"),
	inFleet("fleet-finishing", "the same fleet, with servers that finish canceled work",
		Fleet{Clients: 100, Steps: loadSteps}, "static-200ms"),
	inFleet("fleet-busy", "a fleet in which 5% of the clients make half of the calls",
		Fleet{Clients: 100, Busy: 5, StopsCancelled: true, Steps: someSteps}),
	inFleet("fleet-quiet", "a fleet of 1,000 clients that make one call a second each",
		Fleet{Clients: 1000, StopsCancelled: true, Steps: quietSteps}),
	inFleet("fleet-slow", "a fleet with one server that is ten times slower than the others",
		Fleet{Clients: 100, SlowServer: slowServer, StopsCancelled: true, Steps: someSteps}),
}

// Named returns the workload of that name. It panics if there is none.
func Named(name string) Workload {
	i := slices.IndexFunc(All, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		panic("no workload " + name)
	}
	return All[i]
}

// Names are the names of all workloads.
func Names() []string {
	var names []string
	for _, w := range All {
		names = append(names, w.Name)
	}
	return names
}

// Runs reports whether the workload is measured by a clock.
func (w Workload) Runs(c Clock) bool { return w.Size(c).Calls > 0 }

func (w Workload) Size(c Clock) Size {
	if c == RealClock {
		return w.Real
	}
	return w.Virtual
}

// PoliciesBy are the names of the policies of a full run by a clock.
func (w Workload) PoliciesBy(c Clock) []string {
	if c == RealClock && w.RealPolicies != nil {
		return w.RealPolicies
	}
	return w.Policies
}

// Script returns the script of the workload's backends; nil: they answer after a time drawn from
// the distribution. began returns the start of the run, and run is its planned duration.
func (w Workload) Script(distribution testserver.Distribution, seed uint64, destination int, began func() time.Time,
	run time.Duration) testserver.Script {
	if w.Plan == nil && w.Over == nil {
		return nil
	}
	backends := byArrival{numbers: map[int]int{}}
	return func(a testserver.Attempt) testserver.Plan {
		a.Backend = backends.number(a.Backend)
		m := Moment{Attempt: a, Destination: destination, distribution: distribution, seed: seed,
			at: a.Arrival.Sub(began()), run: run}
		if w.Plan != nil {
			return w.Plan(m)
		}
		factor, plus := w.Over(m.at, run)
		return testserver.Plan{Delay: time.Duration(factor*float64(a.Draw(distribution))) + plus}
	}
}

// slowMethod is the distribution of the second method of the mixed workload.
var slowMethod = testserver.LogNormal(200*time.Millisecond, 40*time.Millisecond)

func planMixed(m Moment) testserver.Plan {
	if m.Method == testpb.TestService_UnaryIdempotent_FullMethodName {
		return testserver.Plan{Delay: m.Draw(slowMethod)}
	}
	return testserver.Plan{Delay: m.Draw(testserver.Straggler(m.distribution, 0.02, 20))}
}

// planTrickle lets one attempt in twenty take eight times as long.
func planTrickle(m Moment) testserver.Plan {
	return testserver.Plan{Delay: m.Draw(testserver.Straggler(m.distribution, 0.05, 8))}
}

func isOdd(want bool) func(n, calls int) bool {
	return func(n, _ int) bool { return (CallID(n)%2 == 1) == want }
}

// The most calls, or requests of a hundred calls each, that a short run makes.
const (
	shortVirtual = 5_000
	shortArrive  = 1_500 // calls that arrive by the clock with a constant distribution: some seconds of the run
	shortReal    = 1_000
	shortFan     = 200
)

// Shorten returns the workload with the sizes of a short run.
func (w Workload) Shorten() Workload {
	if w.Fleet != nil {
		return w.shortenFleet()
	}
	most := shortVirtual
	switch {
	case w.Fan > 0:
		most = shortFan
	case w.Arrivals != nil && w.Over == nil:
		most = shortArrive
	}
	w.Virtual.Calls = min(w.Virtual.Calls, most)
	w.Real.Calls = min(w.Real.Calls, shortReal)
	return w
}

// Words returns the things measured, in the plural, and the name of the quantity.
func (w Workload) Words() (noun, value string) {
	switch {
	case w.Fan > 0:
		return "requests", "latency of a request"
	case w.Name == "ttft", w.Name == "http-ttft":
		return "streams", "time to first message"
	}
	return "calls", "latency"
}

// TrueQuantile returns a quantile of a primary's latency at a time of a run, computed from 20,000
// draws.
func (w Workload) TrueQuantile(q float64, at, run time.Duration) time.Duration {
	distribution, err := testserver.ParseDistribution(w.Distribution)
	if err != nil {
		panic(err) // the table of workloads is wrong
	}
	rng := rand.New(rand.NewPCG(1, 2))
	draws := make([]time.Duration, 20_000)
	for i := range draws {
		draws[i] = distribution.Draw(rng)
	}
	slices.Sort(draws)
	factor, plus := 1.0, time.Duration(0)
	if w.Over != nil {
		factor, plus = w.Over(at, run)
	}
	return time.Duration(factor*float64(figure.Quantile(draws, q))) + plus
}
