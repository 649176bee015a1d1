package workload

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/internal/testserver"
)

var regions = Workload{
	Name: "regions", About: "100 calls a second of 5 ms to a region that stalls for 1 s in 5 in the second third of " +
		"the run, and is down in the last; a second region is 20 ms further and well",
	Distribution: "lognormal:5.533ms,2.621ms", Call: unary, AtOnce: true, Second: true, backends: 1,
	Plan: planRegions, Arrivals: poissonSteps(100), Parts: phases, Virtual: Size{30_000, 1}, Real: Size{6_000, 1},
	Policies: []string{policy.None, "retry", policy.Adaptive, "elsewhere", "failsafe-go-fallback"},
}

var providers = Workload{
	// median 600 ms, sigma 0.4
	Name: "providers", About: "the first tokens of two providers, 5 questions a second of 600 ms; each has slow " +
		"starts, failures, a brown-out and a stall, at different times",
	Distribution: "lognormal:650ms,270.8ms", Call: unary, AtOnce: true, Second: true, backends: 1,
	Plan: planProviders, Arrivals: poissonSteps(5), Virtual: Size{10_000, 1}, Real: Size{600, 1},
	Policies: []string{policy.None, "retry", policy.Adaptive, "elsewhere", "failsafe-go-fallback"},
}

// FailedTakes is the latency with which a failed call of a workload with two destinations counts.
const FailedTakes = time.Minute

// further is how much longer each attempt in the second region takes.
const further = 20 * time.Millisecond

// planRegions has the first region stall for 1 s in 5 in the second third of a run, and fail in the
// last third.
func planRegions(m Moment) testserver.Plan {
	work := m.Draw(m.distribution)
	switch {
	case m.Destination > 0:
		return testserver.Plan{Delay: work + further}
	case m.at >= m.run*2/3:
		return testserver.Plan{Delay: time.Millisecond, Code: codes.Unavailable}
	case m.at >= m.run/3:
		if into := m.at % stallEvery; into < stallFor {
			work += stallFor - into
		}
	}
	return testserver.Plan{Delay: work}
}

// A provider's incidents, as shares of a run, and how many of its attempts each affects. Those of the
// second provider come half a run later.
var (
	slowStarts = incident{0, 0.10, 0.2}
	failures   = incident{0.17, 0.23, 0.6}
	brownOut   = incident{0.30, 0.40, 0.3}
	stall      = incident{0.45, 0.47, 0.7}
)

type incident struct{ from, to, affects float64 }

// planProviders plans the first token of an answer.
func planProviders(m Moment) testserver.Plan {
	at := float64(m.at)/float64(max(m.run, 1)) + 0.5*float64(m.Destination)
	at -= float64(int(at))
	u := float64(m.Draw(testserver.Uniform(0, time.Second))) / float64(time.Second)
	hit := func(i incident) bool { return at >= i.from && at < i.to && u < i.affects }
	took := m.Draw(m.distribution)
	switch {
	case hit(slowStarts):
		took += 10 * time.Second
	case hit(failures):
		return testserver.Plan{Delay: 50 * time.Millisecond, Code: codes.Unavailable}
	case hit(brownOut):
		took *= 12
	case hit(stall):
		took += 20 * time.Second
	}
	return testserver.Plan{Delay: took}
}

// phases are the parts of a run of two regions.
var phases = []Part{
	{"both regions are well", thirds[0].Has},
	{"the first one stalls", thirds[1].Has},
	{"the first one is down", thirds[2].Has},
}
