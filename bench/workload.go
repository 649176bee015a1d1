package main

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// workload is a kind of call, how long an attempt of it takes, and how it is measured.
type workload struct {
	name  string
	about string // in a few words
	law   string // as testserver.ParseLaw reads it
	call  call

	// turn is how many calls each caller makes before another policy has its turn, by the real clock: all turns together
	// are under 2 s, what a budget remembers. 0: a policy makes all calls before the next one does.
	turn int
	// atOnce has the policies run at the same time instead: for calls so slow that they keep the machine idle.
	atOnce bool

	// plan is what the server does in an attempt; nil: it answers after a time drawn from the law.
	plan func(moment) testserver.Plan
	// over is how the law changes in the course of the run: a draw is multiplied, and something added; nil: not.
	over func(at, run time.Duration) (factor float64, plus time.Duration)
	// arrivals says when call n begins, after the first; nil: when a caller is free.
	arrivals func(rng *rand.Rand, calls int) []time.Duration
	// fan is how many servers, each a target of its own, a request calls at once; it is as slow as the slowest.
	// 0: one call to one target.
	fan int
	// backends stand behind a target, 3 if left out; workers is how many attempts each serves at a time, 0 for any number.
	backends, workers int
	// parts are calls that are also looked at apart.
	parts []part

	// The sizes of a full run by each clock; without calls it does not run by that clock.
	virtual, real size
	// policies are those of a full run, the ones worth a curve first; real clock: those of realPolicies, if any.
	policies, realPolicies []string
}

// servers is how many backends stand behind a target.
func (w workload) servers() int { return cmp.Or(w.backends, 3) }

// size is how many calls are made, and so many at a time.
type size struct{ calls, concurrency int }

// part is some of the calls of a run.
type part struct {
	name string
	has  func(n, calls int) bool
}

// moment is an attempt as a plan sees it.
type moment struct {
	testserver.Attempt
	law     testserver.Law
	seed    uint64
	at, run time.Duration // since the run began, and how long it is to last where that is known
}

var tuned = []string{"adaptive-1", "adaptive-2", "adaptive-3", "adaptive-p80", "adaptive-p90", "adaptive-p95", "failsafe-go-2"}

// workloads are all there are: a new one is one entry here, and -workload knows it.
var workloads = []workload{
	{
		name: "straggler", about: "mostly 5 ms; one attempt in twenty takes ten times as long", law: "straggler", call: unary, turn: 25,
		virtual: size{50_000, 20}, real: size{50_000, 20},
		policies:     append([]string{none, "static-10ms", "static-50ms", adaptive, "failsafe-go", "static-1s"}, tuned...),
		realPolicies: []string{none, "static-10ms", "static-50ms", adaptive, "adaptive-p90", "failsafe-go"},
	},
	{
		name: "ttft", about: "token streams: headers at once, first token late in one of five", law: "ttft", call: tokens, turn: 10, atOnce: true,
		plan: func(m moment) testserver.Plan {
			return testserver.Plan{Delay: m.Draw(m.law), HeaderAtOnce: true, Interval: time.Millisecond}
		},
		virtual: size{50_000, 20}, real: size{20_000, 20},
		policies:     []string{none, "headers-p90", "static-50ms", adaptive, "adaptive-30%", "adaptive-3-30%", "adaptive-p75-30%", "adaptive-p80", "adaptive-p90"},
		realPolicies: []string{none, "headers-p90", "static-50ms", adaptive, "adaptive-3-30%", "adaptive-p90"},
	},
	{
		name: "grpc-java", about: "mostly 2 ms; one call in ten takes 2, 5 or 10 s more", law: "grpc-java", call: unary,
		virtual: size{2_000, 20}, real: size{2_000, 20},
		policies:     []string{none, "static-1s", adaptive, "adaptive-15%", "adaptive-3-20%", "failsafe-go", "static-10ms", "adaptive-p85-15%", "adaptive-p80", "adaptive-p90"},
		realPolicies: []string{none, "static-1s", adaptive, "adaptive-15%", "adaptive-3-20%", "failsafe-go", "adaptive-p90"},
	},
	{
		name: "slow-one-percent", about: "7 ms; 1.3% of attempts take 600 to 1,000 ms", law: "slow-one-percent", call: unary, atOnce: true,
		virtual: size{20_000, 20}, real: size{20_000, 10},
		policies:     append([]string{none, "static-10ms", "static-50ms", adaptive, "failsafe-go", "adaptive-5%", "static-1s"}, tuned...),
		realPolicies: []string{none, "static-50ms", adaptive, "adaptive-5%", "adaptive-p90", "failsafe-go"},
	},
	{
		name: "pareto", about: "a heavy tail: 3 ms · U^(−1/1.5)", law: "pareto", call: unary, turn: 20,
		virtual: size{50_000, 20}, real: size{20_000, 20},
		policies:     append([]string{none, "static-10ms", "static-50ms", adaptive, "failsafe-go", "static-1s"}, tuned...),
		realPolicies: []string{none, "static-10ms", adaptive, "adaptive-p90", "failsafe-go"},
	},
	{
		name: "fan-out", about: "a request is 100 calls at once, one to each of 100 servers; 1% of attempts take ten times as long", law: "fan-out", call: unary,
		fan: 100, backends: 1, virtual: size{10_000, 1},
		policies: []string{none, "static-10ms", adaptive, "failsafe-go"},
	},
	{
		name: "mixed", about: "two methods of one target, one of 2 ms and one of 200 ms", law: "lognormal:2ms,500us", call: ofTwoMethods,
		plan: planMixed, virtual: size{20_000, 20},
		parts:    []part{{"fast method", isOdd(false)}, {"slow method", isOdd(true)}},
		policies: []string{none, "static-10ms", "static-50ms", adaptive, "failsafe-go", "adaptive-p90"},
	},
	{
		name: "shift", about: "straggler at 500 calls a second, four times as slow in the second third of the run", law: "straggler", call: unary,
		over: inSecondThird(4, 0), arrivals: metronome(2 * time.Millisecond), parts: thirds, virtual: size{45_000, 1},
		policies: []string{none, "static-10ms", "static-50ms", adaptive, "failsafe-go", "adaptive-p90"},
	},
	{
		name: "outage", about: "straggler at 500 calls a second, every attempt 1 s slower in the second third of the run", law: "straggler", call: unary,
		over: inSecondThird(1, time.Second), arrivals: metronome(2 * time.Millisecond), parts: aroundOutage, virtual: size{45_000, 1},
		policies: []string{none, "static-10ms", "static-50ms", adaptive, "failsafe-go", "adaptive-p90", "static-1s"},
	},
	{
		name: "correlated", about: "one request in ten is slow on every backend", law: "lognormal:5ms,2ms", call: unary,
		plan: planCorrelated, virtual: size{50_000, 20},
		policies: []string{none, "static-10ms", "static-50ms", adaptive, "failsafe-go", "adaptive-p90", "adaptive-p95", "adaptive-1"},
	},
	{
		name: "saturated", about: "one backend of 4 workers and a queue, at 70% load and then at 95%", law: "exponential:8ms", call: unary,
		backends: 1, workers: 4, arrivals: poissonSteps(0.70*4/0.008, 0.95*4/0.008), parts: loads, virtual: size{49_500, 1},
		policies: []string{none, "static-10ms", "static-50ms", adaptive, "failsafe-go", "adaptive-p90", "adaptive-p95", "adaptive-1"},
	},
}

func workloadNamed(name string) workload {
	i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		panic("no workload " + name)
	}
	return workloads[i]
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// runs reports whether the workload is measured by a clock.
func (w workload) runs(c clock) bool { return w.size(c).calls > 0 }

func (w workload) size(c clock) size {
	if c == realClock {
		return w.real
	}
	return w.virtual
}

// policiesBy are the names of the policies of a full run by a clock.
func (w workload) policiesBy(c clock) []string {
	if c == realClock && w.realPolicies != nil {
		return w.realPolicies
	}
	return w.policies
}

// script is what the workload's backends do, given a law, for a run that has begun and is to last so long.
func (w workload) script(law testserver.Law, seed uint64, began func() time.Time, run time.Duration) testserver.Script {
	if w.plan == nil && w.over == nil {
		return nil
	}
	return func(a testserver.Attempt) testserver.Plan {
		m := moment{Attempt: a, law: law, seed: seed, at: a.Arrival.Sub(began()), run: run}
		if w.plan != nil {
			return w.plan(m)
		}
		factor, plus := w.over(m.at, run)
		return testserver.Plan{Delay: time.Duration(factor*float64(a.Draw(law))) + plus}
	}
}

// slowMethod is the law of the second method of the mixed workload.
var slowMethod = testserver.LogNormal(200*time.Millisecond, 40*time.Millisecond)

func planMixed(m moment) testserver.Plan {
	if m.Method == testpb.TestService_UnaryIdempotent_FullMethodName {
		return testserver.Plan{Delay: m.Draw(slowMethod)}
	}
	return testserver.Plan{Delay: m.Draw(testserver.Straggler(m.law, 0.02, 20))}
}

func isOdd(want bool) func(n, calls int) bool {
	return func(n, _ int) bool { return (callID(n)%2 == 1) == want }
}

// heavy is the law of the requests of the correlated workload that are slow everywhere.
var heavy = testserver.LogNormal(60*time.Millisecond, 10*time.Millisecond)

// planCorrelated goes by the request, whichever attempt of it this is.
func planCorrelated(m moment) testserver.Plan {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], m.seed)
	binary.LittleEndian.PutUint64(key[8:], m.ID)
	if rand.New(rand.NewChaCha8(key)).Float64() < 0.10 {
		return testserver.Plan{Delay: m.Draw(heavy)}
	}
	return testserver.Plan{Delay: m.Draw(m.law)}
}

// What a short run makes of a workload's calls: so many, or so many requests of a hundred calls.
const (
	shortVirtual = 5_000
	shortReal    = 1_000
	shortFan     = 200
)

// shorten cuts the sizes of the workload down.
func (w workload) shorten() workload {
	most := shortVirtual
	if w.fan > 0 {
		most = shortFan
	}
	w.virtual.calls = min(w.virtual.calls, most)
	w.real.calls = min(w.real.calls, shortReal)
	return w
}

// words says what has the latencies, in the plural, and what they are.
func (w workload) words() (noun, value string) {
	switch {
	case w.fan > 0:
		return "requests", "latency of a request"
	case w.name == "ttft":
		return "streams", "time to first message"
	}
	return "calls", "latency"
}

// trueQuantile is what a primary takes at some time of a run, of 20,000 draws.
func (w workload) trueQuantile(q float64, at, run time.Duration) time.Duration {
	law, err := testserver.ParseLaw(w.law)
	if err != nil {
		panic(err) // the table of workloads is wrong
	}
	rng := rand.New(rand.NewPCG(1, 2))
	draws := make([]time.Duration, 20_000)
	for i := range draws {
		draws[i] = law.Draw(rng)
	}
	slices.Sort(draws)
	factor, plus := 1.0, time.Duration(0)
	if w.over != nil {
		factor, plus = w.over(at, run)
	}
	return time.Duration(factor*float64(quantile(draws, q))) + plus
}
