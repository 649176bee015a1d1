// Package worlds has the table of simulated worlds, and compares policies in them: calls of one
// target that share a budget, the latency of their attempts, and a fault. [All] is the table. To add
// a world, add a row, or a function that draws one.
package worlds

import (
	"math"
	"math/rand/v2"
	"time"
)

// World is a client's calls, and the latency of their attempts.
type World struct {
	Name string
	Kind Kind
	Law  Law

	// Begin returns the law of one run, in place of Law, if latencies depend on earlier attempts.
	Begin func(seed uint64) Law

	Rate        float64 // mean calls per second
	Concurrency int     // callers, each with sequential calls, in place of the rate
	Gathered    int     // calls in each burst, one burst per Every, in place of the rate
	Every       time.Duration
	Arrivals    func(r *rand.Rand, now time.Duration) time.Duration // from a call to the next, in place of the rate
	Calls       int                                                 // 0 is 40,000
	Deadline    time.Duration
	Servers     Servers                   // queue attempts and serve each for its latency; none: no waiting
	Clients     int                       // that share the calls, each with its own budget and learners; 0 is 1
	Method      func(seed, id uint64) int // of a call, an index of Medians; nil: 0
	Medians     []float64                 // of each method's latency, in ms; nil: one method of 5 ms
	Elsewhere   bool                      // hedges have a destination of their own
	Restarts    bool                      // the clients follow each other
	Longest     int                       // consecutive calls of a request, which is as slow as the slowest; 0 is 1
	Budget      float64                   // percent; 0 is 10
	Hedges      int                       // at most, of one call; 0 is 2

	Judged func(begun time.Duration) bool // reports whether to judge a call that begins then; nil: all calls
	First  int                            // leading calls that are not judged; 0 is a tenth, -1 none

	Most  float64 // bound on the ratio to the best policy; 0 is the kind's
	Load  float64 // bound on the load, in percent; 0 is 1.1 times the budget
	Short bool    // guards every change; other worlds are of the long tier
}

// Servers is Count servers with the given number of workers each. Canceled work leaves the queue,
// and a worker that has begun it finishes it.
type Servers struct {
	Count, Workers int
	Stop           bool // canceled work stops
	Finish         bool // canceled work stays in the queue
}

// Kind is a part of the table. Worlds of a kind have bounds on the geometric means of their ratios
// to the best policy.
type Kind struct {
	Name string
	Most float64 // bound on a world's ratio, unless the world has another
	Mean Measures
}

var (
	known    = Kind{"faults", 1.10, Measures{1.03, 1.05, 1.05, 1.08, 1.10, 1.05}}
	drawn    = Kind{"drawn faults", 1.10, Measures{1.03, 1.05, 1.10, 1.10, 1.40, 1.05}}
	requests = Kind{"requests, rates and bursts", 1.25, Measures{1.03, 1.05, 1.08, 1.10, 1.10, 1.05}} // bursts: few tokens
	useless  = Kind{"useless hedges", 1.25, Measures{1.03, 1.03, 1.03, 1.03, 1.03, 1.03}}
	tuned    = Kind{"targets, tuned", math.Inf(1), Measures{1.05, 1.05, 1.12, 1.6, 1.35, 1.12}}
	services = Kind{"traffic of services", math.Inf(1), Measures{1.04, 1.07, 1.09, 1.15, 1.2, 1.05}}
	untuned  = Kind{"targets, others", math.Inf(1), Measures{1.05, 1.05, 1.1, 1.15, 1.35, 1.1}}
	states   = Kind{"backends with a state", 1.10, Measures{1.14, 1.52, 1.52, 1.36, 1.28, 1.35}}
)

// All returns the table.
func All() []World {
	all := append([]World(nil), table...)
	for seed := range uint64(24) {
		all = append(all, drawnWorld(seed))
	}
	for seed := range uint64(36) {
		all = append(all, drawnTarget(seed))
	}
	for _, w := range traffic {
		w.Kind = services
		all = append(all, w)
	}
	for _, w := range stateful {
		w.Kind = states
		all = append(all, w)
	}
	return all
}
