package workload

import (
	"math/rand/v2"
	"time"
)

// metronome starts calls at a fixed pace. Each is late by a random part of up to a tenth of the
// pace, so that no two events happen at the same instant.
func metronome(pace time.Duration) func(*rand.Rand, int) []time.Duration {
	return func(rng *rand.Rand, calls int) []time.Duration {
		at := make([]time.Duration, calls)
		for n := range at {
			at[n] = time.Duration(n)*pace + time.Duration(rng.Int64N(int64(pace/10)))
		}
		return at
	}
}

// poissonSteps starts calls at random, at one rate per second after the other, each for the same
// time.
func poissonSteps(rates ...float64) func(*rand.Rand, int) []time.Duration {
	return func(rng *rand.Rand, calls int) []time.Duration {
		at := make([]time.Duration, 0, calls)
		now := 0.0
		for step, rate := range rates {
			for len(at) < stepEnd(rates, step, calls) {
				now += rng.ExpFloat64() / rate
				at = append(at, time.Duration(now*float64(time.Second)))
			}
		}
		return at
	}
}

// bursts starts calls in groups, one group per period. The calls of a group start a microsecond
// apart, so that no two start at the same instant.
func bursts(group int, every time.Duration) func(*rand.Rand, int) []time.Duration {
	return func(_ *rand.Rand, calls int) []time.Duration {
		at := make([]time.Duration, calls)
		for n := range at {
			at[n] = time.Duration(n/group)*every + time.Duration(n%group)*time.Microsecond
		}
		return at
	}
}

// stepEnd is the number of calls up to the end of a step, if all steps take the same time.
func stepEnd(rates []float64, step, calls int) int {
	upTo, all := 0.0, 0.0
	for i, rate := range rates {
		all += rate
		if i <= step {
			upTo += rate
		}
	}
	return int(upTo/all*float64(calls) + 0.5)
}

// inSecondThird multiplies latencies and adds to them in the second third of a run.
func inSecondThird(factor float64, plus time.Duration) func(at, run time.Duration) (float64, time.Duration) {
	return func(at, run time.Duration) (float64, time.Duration) {
		if at >= run/3 && at < run*2/3 {
			return factor, plus
		}
		return 1, 0
	}
}

// thirds are the parts of a run with a steady call rate and a distribution that changes after each
// third.
var thirds = []Part{
	{"first third", func(n, calls int) bool { return 3*n < calls }},
	{"second third", func(n, calls int) bool { return 3*n >= calls && 3*n < 2*calls }},
	{"last third", func(n, calls int) bool { return 3*n >= 2*calls }},
}

// aroundOutage are the parts of a run of 90 s that is slow in its second third.
var aroundOutage = append(thirds[:2:2],
	Part{"the ninth after it, 10 s of 90", func(n, calls int) bool { return 3*n >= 2*calls && 9*n < 7*calls }},
	Part{"the rest", func(n, calls int) bool { return 9*n >= 7*calls }},
)

// loads are the parts of a run at 70% load, then at 95%.
var loads = []Part{
	{"70% load", func(n, calls int) bool { return n < stepEnd([]float64{70, 95}, 0, calls) }},
	{"95% load", func(n, calls int) bool { return n >= stepEnd([]float64{70, 95}, 0, calls) }},
}
