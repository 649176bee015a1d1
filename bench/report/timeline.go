package report

import (
	"math"
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/picture"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
)

// courseSheet is every policy second by second; nil if the workload has no course.
func (f *findings) courseSheet() *table.Sheet {
	if !f.workload.HasCourse() {
		return nil
	}
	s := &table.Sheet{Labels: 1, Columns: table.Columns("policy", "policy", "second", "second", "calls", "calls",
		"hedges", "hedges", "extra load", "extra_load", "p99", "p99_ms", "delay", "delay_ms")}
	for _, found := range f.runs {
		for _, r := range found.results {
			for i, sec := range r.Seconds() {
				s.Add(table.Word(r.Policy.Name), table.Number(int64(i)), table.Number(int64(sec.Calls)),
					table.Number(int64(sec.Hedges)), table.Share(sec.ExtraLoad()), table.Latency(
						sec.P99), table.Latency(sec.Delay))
			}
		}
	}
	return s
}

// courses are the diagrams over time of a run: the delay, the extra load and the p99.
func (f *findings) courses(found clockRun) []picture.Course {
	name := f.workload.Name
	delay := picture.Course{Title: name + ": the learned delay over time", Value: "delay (ms, log scale)",
		Logarithmic: true}
	load := picture.Course{Title: name + ": extra load in each second", Value: "hedges per 100 calls"}
	tail := picture.Course{Title: name + ": p99 of the calls of each second", Value: "p99 (ms, log scale)",
		Logarithmic: true}
	delay.Series = append(delay.Series, f.truth(found))
	load.Series = append(load.Series,
		steady("10 for 100 calls, the budget of adaptive", 10, len(found.results[0].Seconds())))
	looks := lookOf(found.results)
	for i, r := range found.results[:min(len(found.results), curvesDrawn)] {
		of := func(value func(run.Second) float64) picture.Series {
			s := picture.Series{Label: r.Policy.Name, Look: looks[i]}
			for _, sec := range r.Seconds() {
				s.Values = append(s.Values, value(sec))
			}
			return s
		}
		if r.Policy.Budget > 0 {
			delay.Series = append(delay.Series, of(func(s run.Second) float64 { return msOrNone(s.Delay) }))
		}
		if r.Policy.Name != policy.None {
			load.Series = append(load.Series, of(func(s run.Second) float64 { return 100 * s.ExtraLoad() }))
		}
		tail.Series = append(tail.Series, of(func(s run.Second) float64 { return msOrNone(s.P99) }))
	}
	if f.workload.Over == nil { // then the distribution does not change
		return []picture.Course{load, tail}
	}
	return []picture.Course{delay, load, tail}
}

// truth is the true 90th percentile of primaries in each second of a run.
func (f *findings) truth(found clockRun) picture.Series {
	s := picture.Series{Label: "true p90 of a primary", Look: 0}
	r := found.results[0]
	whole := slices.Max(r.Began)
	known := map[[2]float64]float64{}
	for i := range r.Seconds() {
		factor, plus := 1.0, time.Duration(0)
		at := time.Duration(i)*time.Second + time.Second/2
		if f.workload.Over != nil {
			factor, plus = f.workload.Over(at, whole)
		}
		key := [2]float64{factor, float64(plus)}
		if _, ok := known[key]; !ok {
			known[key] = msOrNone(f.workload.TrueQuantile(0.90, at, whole))
		}
		s.Values = append(s.Values, known[key])
	}
	return s
}

// steady is a constant series, with the look of unhedged calls.
func steady(label string, value float64, n int) picture.Series {
	return picture.Series{Label: label, Look: 0, Values: slices.Repeat([]float64{value}, n)}
}

func msOrNone(d time.Duration) float64 {
	if d == 0 {
		return math.NaN()
	}
	return d.Seconds() * 1e3
}

// lookOf gives each result a look. Unhedged calls and this library's default have the same look in
// every picture; the others get the remaining looks in order.
func lookOf(results []*run.Result) []int {
	indexes := make([]int, len(results))
	next := 2
	for i, r := range results {
		switch r.Policy.Name {
		case policy.None:
			indexes[i] = 0
		case policy.Adaptive:
			indexes[i] = 1
		default:
			indexes[i] = 2 + (next-2)%(picture.LookCount-2)
			next++
		}
	}
	return indexes
}
