package main

import (
	"math"
	"slices"
	"time"
)

// courseSheet is the course of every policy, second by second; nil if calls did not arrive by the clock.
func (f *findings) courseSheet() *sheet {
	if f.workload.arrivals == nil {
		return nil
	}
	s := &sheet{labels: 1, columns: []column{{"policy", "policy"}, {"second", "second"}, {"calls", "calls"}, {"hedges", "hedges"},
		{"extra load", "extra_load"}, {"p99", "p99_ms"}, {"delay", "delay_ms"}}}
	for _, run := range f.runs {
		for _, r := range run.results {
			for i, sec := range r.seconds() {
				s.add(word(r.policy.name), number(int64(i)), number(int64(sec.calls)), number(int64(sec.hedges)), share(sec.extraLoad()), latency(sec.p99), latency(sec.delay))
			}
		}
	}
	return s
}

// courses are the diagrams over time of a run: the delay, the extra load and the p99.
func (f *findings) courses(run clockRun) []course {
	name := f.workload.name
	delay := course{title: name + ": the learned delay over time", value: "delay (ms, log scale)", logarithmic: true}
	load := course{title: name + ": extra load in each second", value: "hedges per 100 calls"}
	tail := course{title: name + ": p99 of the calls of each second", value: "p99 (ms, log scale)", logarithmic: true}
	delay.series = append(delay.series, f.truth(run))
	load.series = append(load.series, steady("10 for 100 calls, the budget of adaptive", 10, len(run.results[0].seconds())))
	looks := lookOf(run.results)
	for i, r := range run.results[:min(len(run.results), curvesDrawn)] {
		of := func(value func(second) float64) series {
			s := series{label: r.policy.name, look: looks[i]}
			for _, sec := range r.seconds() {
				s.values = append(s.values, value(sec))
			}
			return s
		}
		if r.policy.budget > 0 {
			delay.series = append(delay.series, of(func(s second) float64 { return msOrNone(s.delay) }))
		}
		if r.policy.name != none {
			load.series = append(load.series, of(func(s second) float64 { return 100 * s.extraLoad() }))
		}
		tail.series = append(tail.series, of(func(s second) float64 { return msOrNone(s.p99) }))
	}
	if f.workload.over == nil { // then what a primary takes is up to the queue
		return []course{load, tail}
	}
	return []course{delay, load, tail}
}

// truth is what the 90th percentile of primaries is in each second of a run.
func (f *findings) truth(run clockRun) series {
	s := series{label: "true p90 of a primary", look: 0}
	r := run.results[0]
	whole := slices.Max(r.began)
	known := map[[2]float64]float64{}
	for i := range r.seconds() {
		factor, plus := 1.0, time.Duration(0)
		at := time.Duration(i)*time.Second + time.Second/2
		if f.workload.over != nil {
			factor, plus = f.workload.over(at, whole)
		}
		key := [2]float64{factor, float64(plus)}
		if _, ok := known[key]; !ok {
			known[key] = msOrNone(f.workload.trueQuantile(0.90, at, whole))
		}
		s.values = append(s.values, known[key])
	}
	return s
}

// steady is a series that does not change, with the look of what is not hedged.
func steady(label string, value float64, n int) series {
	return series{label: label, look: 0, values: slices.Repeat([]float64{value}, n)}
}

func msOrNone(d time.Duration) float64 {
	if d == 0 {
		return math.NaN()
	}
	return d.Seconds() * 1e3
}

// lookOf gives each result a look: what is not hedged and what this library does by default the same ones in every
// picture, the others what is left, in their order.
func lookOf(results []*result) []int {
	indexes := make([]int, len(results))
	next := 2
	for i, r := range results {
		switch r.policy.name {
		case none:
			indexes[i] = 0
		case adaptive:
			indexes[i] = 1
		default:
			indexes[i] = 2 + (next-2)%(lookCount-2)
			next++
		}
	}
	return indexes
}
